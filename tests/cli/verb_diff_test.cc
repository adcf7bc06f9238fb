// ferry diff, with the schema of its document.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"
#include "tests/cli/schema_check.h"

namespace ferry::verb_diff_test {
namespace {

using nlohmann::json;

class VerbDiff : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", old}).code, 0);
    const std::string tuned = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
      const std::string name = "model.norm.weight";
      std::string bytes = file.bytes_of(name);
      bytes[1] = static_cast<char>(bytes[1] ^ 1);
      file.set_bytes(name, bytes);
    });
    ASSERT_EQ(run_ferry({"convert", tuned, "-o", made}).code, 0);
  }
  TempDir dir;
  const std::string old = dir / "old", made = dir / "made", patch = dir / "p";
};

TEST_F(VerbDiff, SaysWhatThePatchHolds) {
  const Outcome done = run_ferry({"diff", old, made, "-o", patch});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("changed   decoder-00001-of-00001.ptd"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find(" unchanged\n"), std::string::npos) << done.out;
  EXPECT_LT(std::filesystem::file_size(patch) * 20,
            std::filesystem::file_size(made + "/decoder-00001-of-00001.ptd"));
}

TEST_F(VerbDiff, DocumentFitsItsSchema) {
  const json document = run_ferry({"--json", "diff", old, made, "-o", patch}).json();
  for (const std::string& problem : schema_problems("diff.json", document)) {
    ADD_FAILURE() << problem;
  }
  const json& result = document["result"];
  EXPECT_EQ(result["patch_bytes"], std::filesystem::file_size(patch));
  size_t changed = 0;
  for (const json& file : result["files"]) changed += file["state"] == "changed" ? 1 : 0;
  EXPECT_EQ(changed, 2U) << result;
}

TEST_F(VerbDiff, ExitCodes) {
  EXPECT_EQ(run_ferry({"diff", old, made}).code, 2);
  EXPECT_EQ(run_ferry({"diff", old, dir / "absent", "-o", patch}).code, 5);
  ASSERT_EQ(run_ferry({"diff", old, made, "-o", patch}).code, 0);
  EXPECT_EQ(run_ferry({"diff", old, made, "-o", patch}).code, 6);
  EXPECT_EQ(run_ferry({"diff", old, made, "-o", patch, "--overwrite"}).code, 0);
  write_bytes(old + "/manifest.json", "{}");
  EXPECT_EQ(run_ferry({"diff", old, made, "-o", patch, "--overwrite"}).code, 3);
}

}  // namespace
}  // namespace ferry::verb_diff_test
