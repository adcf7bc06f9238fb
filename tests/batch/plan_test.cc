// Plans are read strictly: a line that is not understood is refused with its number.
#include "batch/plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "batch/find_checkpoints.h"
#include "tests/batch/batch_testing.h"

namespace ferry::batch::plan_test {
namespace {

namespace fs = std::filesystem;

std::string task_line(const std::string& id, const std::string& output,
                      const std::string& more = "") {
  return R"({"id":")" + id + R"(","input":"in/)" + id + R"(","output":")" + output + "\"" + more +
         "}\n";
}

std::string message(const std::string& text) {
  const Result<Plan> plan = parse_plan(text, "p");
  return plan ? "accepted" : plan.error().message;
}

TEST(Plan, TasksTakeTheDefaultsThatTheyDoNotState) {
  const std::string first =
      R"({"ferry_plan":1,"defaults":{"args":["--dtype","bf16"],"verify":{"checkpoint":true}}})"
      "\n";
  const Result<Plan> good = parse_plan(
      first + task_line("a", "out/a") +
          task_line("b", "out/b",
                    R"(,"args":[],"verify":{"reference":"r","args":["--tolerance","1"]},)"
                    R"("expect":{"max_bytes":7})"),
      "p");
  ASSERT_TRUE(good) << good.error().message;
  ASSERT_EQ(good->tasks.size(), 2u);
  const Task &a = good->tasks[0], &b = good->tasks[1];
  EXPECT_EQ(a.args, (std::vector<std::string>{"--dtype", "bf16"}));
  EXPECT_TRUE(a.verify.checkpoint);
  EXPECT_TRUE(b.args.empty());
  EXPECT_FALSE(b.verify.checkpoint);
  EXPECT_EQ(b.verify.reference, "r");
  EXPECT_EQ(b.expect.max_bytes, 7u);
  EXPECT_EQ(b.index, 1u);
}

TEST(Plan, WhatIsNotUnderstoodIsRefusedWithItsLine) {
  const std::string a = task_line("a", "out/a");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "p: no task in this plan"},
      {a + "\n" + task_line("b", "out/b"), "p: line 2: is empty"},
      {a + "[]\n", "p: line 2: is not an object"},
      {a + "{\n", "p: line 2"},
      {a + task_line("b", "out/b", R"(,"outptu":"x")"), "line 2: there is no member 'outptu' of a"},
      {a + task_line("b", "out/b", R"(,"verify":{"chekpoint":true})"), "no member 'chekpoint'"},
      {a + task_line("b", "out/b", R"(,"verify":{"checkpoint":1})"), "is not true or false"},
      {a + task_line("b", "out/b", R"(,"expect":{"sha256":"12"})"), "64 hexadecimal digits"},
      {a + task_line("b", "out/b", R"(,"expect":{"max_bytes":-1})"), "is not a whole number"},
      {a + task_line("b", "out/b", R"(,"id":"c")"), "line 2"},
      {a + task_line("a", "out/b"), "p: line 2: id 'a' is that of line 1"},
      {a + task_line("b", "./out//a/"), "line 2: output './out//a/' is that of line 1"},
      {a + task_line("b", "out/a/b"), "is inside of that of line 1"},
      {task_line("b", "out/a/b") + a, "is inside of that of line 2"},
      {task_line("a", "in/a"), "'output' is 'input'"},
      {task_line("../a", "out/a"), "line 1: id '../a' is not 1 to 200 of"},
      {task_line(".a", "out/a"), "is not 1 to 200 of"},
      {task_line("a~", "out/a"), "is not 1 to 200 of"},
      {task_line(std::string(201, 'a'), "out/a"), "is not 1 to 200 of"},
      {R"({"id":"a","input":"x"})", "line 1: 'output' is missing"},
      {R"({"id":"a","input":"","output":"x"})", "'input' is empty"},
      {R"({"id":"a","input":"x\u0000y","output":"x"})", "'input' has a NUL character"},
      {R"({"ferry_plan":2})", "'ferry_plan' is not 1"},
      {R"({"ferry_plan":1,"default":{}})", "no member 'default' of a plan's first line"},
      {R"({"ferry_plan":1,"defaults":{"id":"a"}})", "no member 'id' of 'defaults'"},
      {a + R"({"ferry_plan":1})", "line 2: 'ferry_plan' stands in the first line only"}};
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(message(text).find(expected), std::string::npos) << text << "\n" << message(text);
  }
}

TEST(Plan, OutputsThatLinksMakeEqualOrNestedAreRefused) {
  const TempDir dir;
  fs::create_directories(dir / "real");
  fs::create_directory_symlink("real", dir / "link");
  const std::string a = task_line("a", dir / "real/x");
  EXPECT_NE(message(a + task_line("b", dir / "link/x")).find("is that of line 1"),
            std::string::npos);
  EXPECT_NE(message(a + task_line("b", dir / "link/x/y")).find("is inside of that of line 1"),
            std::string::npos);
  EXPECT_EQ(message(a + task_line("b", dir / "link/y")), "accepted");
  const std::string absolute = (fs::current_path() / "out/a").string();
  EXPECT_NE(message(task_line("a", "out/a") + task_line("b", absolute)).find("is that of line 1"),
            std::string::npos);
}

TEST(Plan, WordsThatBatchGivesItselfAreRefused) {
  for (const char* word : {"-o", "-oX", "-o=X", "--out=X", "--overwrite", "--resume", "--no-sync",
                           "--dry-run", "--json", "--threads=3", "--", "--help"}) {
    const std::string text = task_line("a", "out/a", std::string(R"(,"args":[")") + word + R"("])");
    EXPECT_NE(message(text).find("in 'args' is not allowed"), std::string::npos) << word;
  }
  EXPECT_EQ(message(task_line("a", "out/a", R"(,"args":["--dtype","bf16"])")), "accepted");
}

// -- finding

TEST(FindCheckpoints, EveryFormatThatConvertTakes) {
  const TempDir dir;
  const auto put = [&](const std::string& path) {
    fs::create_directories(fs::path(dir / path).parent_path());
    write_bytes(dir / path, "x");
  };
  for (const char* path :
       {"z/model.safetensors", "z/optimizer.pt", "z/step 1/pytorch_model.bin",
        "a/model.safetensors.index.json", "a/model-00001-of-00002.safetensors", "q/one-q4.gguf",
        "q/two-q8.gguf", "k/model.weights.h5", "k2/model.weights.json", "loose/x.safetensors",
        "single/config.json", "single/x.safetensors", ".hidden/model.safetensors",
        "bundle/manifest.json", "bundle/sub/model.safetensors", "none/README.md", "w/config.json",
        "w/tokenizer.json", "a/1_Pooling/config.json"}) {
    put(path);
  }
  fs::create_directory_symlink(dir / "z", dir / "link");
  const auto found = find_checkpoints(dir / "");
  ASSERT_TRUE(found) << found.error().message;
  std::vector<std::string> names;
  for (const std::string& path : found->checkpoints)
    names.push_back(path.substr((dir / "").size()));
  EXPECT_EQ(names, (std::vector<std::string>{"a", "k", "k2", "q/one-q4.gguf", "q/two-q8.gguf",
                                             "single/x.safetensors", "z", "z/step 1"}));
  EXPECT_EQ(found->without_weights, std::vector<std::string>{dir / "w"});
}

TEST(FindCheckpoints, WithoutWeightsIsSaid) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) {
    fs::create_directories(dir / name);
    write_bytes(dir / (std::string(name) + "/config.json"), "{}");
  }
  const PlanOptions options{.directories = {dir.path()}, .out_dir = "o"};
  const auto none = make_plan(options);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().details,
            (std::vector<std::string>{(dir / "a") + ": a config.json without weights",
                                      (dir / "b") + ": a config.json without weights"}));
  write_bytes(dir / "a/model.safetensors", "x");
  const auto planned = make_plan(options);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(planned->without_weights, std::vector<std::string>{dir / "b"});
}

TEST(FindCheckpoints, IdsAreUniqueAndTheSameEveryTime) {
  const TempDir dir;
  for (const char* name : {"x/a b", "x/a-b", "x/c/d", "y/c/d", "x/=="}) {
    fs::create_directories(dir / name);
    write_bytes(dir / (std::string(name) + "/model.safetensors"), "x");
  }
  const PlanOptions options{.directories = {dir / "x", dir / "y", dir / "x/"},
                            .out_dir = "o",
                            .args = {"--dtype", "bf16"},
                            .verify = {.check = true}};
  const auto planned = make_plan(options);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_EQ(planned->tasks, 5u);
  const auto plan = parse_plan(planned->text, "p");
  ASSERT_TRUE(plan) << plan.error().message;  // so ids and outputs are unique
  EXPECT_EQ(plan->tasks[0].args, options.args);
  EXPECT_TRUE(plan->tasks[4].verify.check);
  EXPECT_EQ(make_plan(options)->text, planned->text);
  // A further folder in the source changes no id of the other tasks.
  fs::create_directories(dir / "x/0");
  write_bytes(dir / "x/0/model.safetensors", "x");
  const auto more = make_plan(options);
  ASSERT_TRUE(more);
  for (const Task& task : plan->tasks) {
    EXPECT_NE(more->text.find("\"id\":\"" + task.id + "\""), std::string::npos) << task.id;
  }
}

TEST(FindCheckpoints, NoneIsAnError) {
  const TempDir dir;
  const auto planned = make_plan({.directories = {dir / ""}, .out_dir = "o"});
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace ferry::batch::plan_test
