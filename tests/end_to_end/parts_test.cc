// One bundle is made by several hosts: each makes a part, and a last step joins the parts.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/ferry_process.h"

namespace ferry::parts_test {
namespace {

namespace fs = std::filesystem;

class Parts : public testing::Test {
 protected:
  std::vector<std::string> line(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> words = {"convert", fixture("llama3_tied"), "-o",
                                      out,       "--max-file-size",      "100K"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void write_parts(int count) {
    fs::create_directory(dir_ / "parts");
    for (int i = 1; i <= count; ++i) {
      const std::string part = std::to_string(i) + "/" + std::to_string(count);
      const Outcome made =
          run_ferry_once(line(dir_ / ("parts/" + std::to_string(i)), {"--part", part}));
      ASSERT_EQ(made.code, 0) << made.err;
    }
  }
  Outcome join() { return run_ferry_once(line(dir_ / "joined", {"--join", dir_ / "parts"})); }

  TempDir dir_;
};

TEST_F(Parts, MakeTheBundleThatOneRunMakes) {
  ASSERT_EQ(run_ferry_once(line(dir_ / "whole", {})).code, 0);
  write_parts(3);
  // Every data file is in one part. Beside data files a part has only its journal.
  size_t files = 0;
  for (const char* part : {"parts/1", "parts/2", "parts/3"}) {
    const auto found = files_in(dir_ / part);
    EXPECT_EQ(found.count("part.journal"), 1u);
    EXPECT_GE(found.size(), 2u);
    files += found.size() - 1;
  }
  const auto whole = files_in(dir_ / "whole");
  EXPECT_EQ(files, std::ranges::count_if(
                       whole, [](const auto& file) { return file.first.ends_with(".ptd"); }));
  const Outcome joined = join();
  ASSERT_EQ(joined.code, 0) << joined.err;
  EXPECT_EQ(files_in(dir_ / "joined"), whole);
  EXPECT_TRUE(fs::is_empty(dir_ / "parts"));
  EXPECT_EQ(run_ferry({"check", dir_ / "joined"}).code, 0);
}

TEST_F(Parts, AreAllNeeded) {
  write_parts(3);
  fs::remove_all(dir_ / "parts/2");
  const Outcome joined = join();
  EXPECT_EQ(joined.code, 3);
  EXPECT_NE(joined.err.find("no part has it"), std::string::npos) << joined.err;
  EXPECT_FALSE(fs::exists(dir_ / "joined"));
  EXPECT_TRUE(fs::exists(dir_ / "parts/1/part.journal"));
  // After the missing part is made, the same command succeeds.
  ASSERT_EQ(run_ferry_once(line(dir_ / "parts/2", {"--part", "2/3"})).code, 0);
  EXPECT_EQ(join().code, 0);
}

TEST_F(Parts, OfAnotherPlanAreRefused) {
  write_parts(2);
  const Outcome joined =
      run_ferry_once({"convert", fixture("llama3_tied"), "-o", dir_ / "joined", "--max-file-size",
                      "100K", "--dtype", "f16", "--join", dir_ / "parts"});
  EXPECT_EQ(joined.code, 3);
  EXPECT_NE(joined.err.find("is a part of another bundle"), std::string::npos) << joined.err;
}

// Parts are untrusted: damaged data is made again.
TEST_F(Parts, ThatAreDamagedAreMadeAgain) {
  ASSERT_EQ(run_ferry_once(line(dir_ / "whole", {})).code, 0);
  write_parts(2);
  for (const auto& entry : fs::directory_iterator(dir_ / "parts/1")) {
    if (entry.path().extension() != ".ptd") continue;
    std::string bytes = read_bytes(entry.path());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    write_bytes(entry.path(), bytes);
  }
  ASSERT_EQ(join().code, 0);
  EXPECT_EQ(files_in(dir_ / "joined"), files_in(dir_ / "whole"));
}

TEST_F(Parts, AreTasksOfABatch) {
  const auto task = [&](const std::string& id, const std::string& output, const std::string& option,
                        const std::string& value) {
    return nlohmann::json{{"id", id},
                          {"input", fixture("llama3_tied")},
                          {"output", dir_ / output},
                          {"args", {"--max-file-size", "100K", option, value}}}
               .dump() +
           "\n";
  };
  const std::string parts = dir_.write("parts.jsonl", task("p1", "parts/1", "--part", "1/2") +
                                                          task("p2", "parts/2", "--part", "2/2"));
  const std::string join =
      dir_.write("join.jsonl", task("all", "joined", "--join", dir_ / "parts"));
  for (const std::string& plan : {parts, parts, join}) {  // twice: the second time all is done
    const Outcome ran = run_ferry_once({"batch", "run", plan, "--workers", "1"});
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
  EXPECT_EQ(run_ferry({"check", dir_ / "joined"}).code, 0);
}

TEST_F(Parts, MakeSenseOrAreRefused) {
  for (const char* part : {"0/2", "3/2", "1", "a/b", "1/0", "1/2/3"}) {
    EXPECT_EQ(run_ferry(line(dir_ / "p", {"--part", part})).code, 2) << part;
  }
  EXPECT_EQ(run_ferry(line(dir_ / "p", {"--part", "1/2", "--join", dir_.path()})).code, 2);
  EXPECT_EQ(run_ferry(line(dir_ / "p", {"--part", "1/2", "--dry-run"})).code, 2);
  EXPECT_EQ(run_ferry(line(dir_ / "p", {"--part", "1/2", "--no-sync"})).code, 2);
  EXPECT_EQ(run_ferry(line(dir_ / "p", {"--resume", "--no-sync"})).code, 2);
  const Outcome many = run_ferry(line(dir_ / "p", {"--part", "1/5000"}));
  EXPECT_EQ(many.code, 2);
  EXPECT_NE(many.err.find("a smaller file size makes more"), std::string::npos) << many.err;
}

}  // namespace
}  // namespace ferry::parts_test
