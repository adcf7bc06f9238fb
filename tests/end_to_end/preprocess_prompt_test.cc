// preprocess with a prompt: all inputs of a vision-language model, from images and a chat.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/ferry_process.h"

namespace ferry::preprocess_prompt_test {
namespace {

using nlohmann::json;
using Line = std::vector<std::string>;

json goldens() { return json::parse(read_bytes(fixture("media/prompts.json"))); }

// Expands a list of ids, in which [id, n] stands for n times the id.
std::vector<int64_t> unrolled(const json& ids) {
  std::vector<int64_t> out;
  for (const json& id : ids) {
    const bool run = id.is_array();
    out.insert(out.end(), run ? id[1].get<size_t>() : 1, (run ? id[0] : id).get<int64_t>());
  }
  return out;
}

Line images_of(const json& row) {
  Line line = {"--json", "preprocess"};
  for (const std::string name : row["images"]) line.push_back(fixture("media/images/" + name));
  return line;
}

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

TEST(PreprocessPrompt, GivesTheInputsOfTheReference) {
  const TempDir dir;
  const json all = goldens();
  for (const auto& [processor, cases] : all.items()) {
    for (const json& row : cases["cases"]) {
      const std::string name = processor + "." + row["case"].get<std::string>();
      SCOPED_TRACE(name);
      const std::string chat = dir.write(name + ".json", row["chat"].dump());
      const Outcome made =
          run_ferry(images_of(row) + Line{"--checkpoint", fixture("media/" + processor), "-o",
                                          dir / name, "--messages", chat});
      ASSERT_EQ(made.code, 0) << made.err;
      const json prompt = made.json()["prompt"];
      const std::vector<int64_t> ids = unrolled(row["ids"]);
      EXPECT_EQ(prompt["text"], row["text"]);
      EXPECT_EQ(prompt["input_ids"], json(ids));
      EXPECT_EQ(prompt["tokens_per_tile"], 16);
      for (size_t i = 0; i < row["images"].size(); ++i) {
        const json positions = prompt["tile_positions"][i];
        EXPECT_EQ(positions.size(), made.json()["images"][i]["tiles"]);
        for (const size_t at : positions) EXPECT_EQ(ids[at + 15], prompt["placeholder_id"]);
      }
      const TensorFile file(dir / name);
      const std::string bytes = file.bytes_of("input_ids");
      ASSERT_EQ(bytes.size(), ids.size() * sizeof(int64_t));
      EXPECT_EQ(std::memcmp(bytes.data(), ids.data(), bytes.size()), 0);
      EXPECT_TRUE(file.header.contains("pixel_values"));
    }
  }
}

TEST(PreprocessPrompt, AllFormsOfPrompts) {
  const TempDir dir;
  const Line smolvlm = {"--checkpoint", fixture("media/smolvlm")};
  const std::string image = fixture("media/images/wide_6x1.png");
  const Outcome chat = run_ferry(Line{"preprocess", image, "--chat", "Why?"} + smolvlm);
  ASSERT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(chat.out, image +
                          ": 360 x 60: 3 tiles: 1 rows of 2 and the whole image\n"
                          "prompt: 77 tokens, 48 of them for 3 tiles\n");
  const Outcome plain =
      run_ferry(Line{"--json", "preprocess", "--prompt", "Why?", "-o", dir / "ids"} + smolvlm);
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.json()["prompt"]["text"], "Why?");
  const TensorFile file(dir / "ids");
  EXPECT_EQ(file.header.size(), 1U);
  EXPECT_EQ(file.header["input_ids"]["shape"][1], plain.json()["prompt"]["input_ids"].size());
}

TEST(PreprocessPrompt, RefusalsAreOneLine) {
  const TempDir dir;
  const std::string image = fixture("media/images/tiny.png");
  const std::string messages = dir.write("m.json", R"([{"role": "user", "content": "Hello"}])");
  const Line smolvlm = {"preprocess", "--checkpoint", fixture("media/smolvlm")};
  struct Case {
    Line args;
    int code;
    std::string message;
  };
  const Case cases[] = {
      {{"--chat", "<image>"}, 3, "--chat: 1 placeholder '<image>' in the prompt for 0 images"},
      {{image, "--prompt", "<image> <image>"}, 3, "--prompt: 2 placeholders '<image>'"},
      {{"--messages", messages}, 3, messages + ": message 1: its content is a string"},
      {{"--messages", dir / "absent"}, 5, "absent"},
      {{"--messages", image}, 3, image},
      {{"--chat", "a", "--prompt", "b"}, 2, "exclude each other"},
      {{"--chat", "\xff"}, 2, "--chat: not UTF-8"},
      {{}, 2, "an IMAGE or a prompt is required"},
      {{"--chat", "a", "--checkpoint", fixture("llama3_tied")}, 2, "checkpoint"},
  };
  for (const auto& [args, code, message] : cases) {
    const Outcome outcome = run_ferry(smolvlm + args);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
  const Outcome text_model =
      run_ferry({"preprocess", "--chat", "a", "--checkpoint", fixture("llama3_tied")});
  EXPECT_EQ(text_model.code, 3);
  EXPECT_NE(text_model.err.find("has no image processor"), std::string::npos) << text_model.err;
}

// A bundle contains the files that prompts with images need.
TEST(PreprocessPrompt, FromABundle) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  for (const auto& entry : std::filesystem::directory_iterator(fixture("media/internvl"))) {
    std::filesystem::copy(entry.path(), source);
  }
  ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
  const Line rest = {"preprocess", fixture("media/images/square.png"), "--chat", "Why?", "--json"};
  const Outcome bundle = run_ferry(rest + Line{"--checkpoint", dir / "b"});
  ASSERT_EQ(bundle.code, 0) << bundle.err;
  EXPECT_EQ(bundle.out, run_ferry(rest + Line{"--checkpoint", source}).out);
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
}

}  // namespace
}  // namespace ferry::preprocess_prompt_test
