// ferry apply, with the schema of its document and with signatures.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"
#include "tests/cli/schema_check.h"

namespace ferry::verb_apply_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Apply : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", old}).code, 0);
    ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", made, "--dtype", "bf16"}).code,
              0);
    write_bytes(key, read_bytes(fixture("signing_keys/p256.pem")));
    fs::permissions(key, fs::perms(0600));
  }
  void diff() { ASSERT_EQ(run_ferry({"diff", old, made, "-o", patch, "--overwrite"}).code, 0); }
  TempDir dir;
  const std::string old = dir / "old", made = dir / "made", patch = dir / "p", out = dir / "out";
  const std::string key = dir / "key.pem", public_key = fixture("signing_keys/p256.pub.pem");
};

TEST_F(Apply, MakesTheNewBundle) {
  diff();
  const Outcome done = run_ferry({"apply", old, patch, "-o", out});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(files_in(out) == files_in(made));
  EXPECT_EQ(run_ferry({"check", out}).code, 0);
  EXPECT_EQ(run_ferry({"apply", old, patch, "-o", out}).code, 6);
  EXPECT_EQ(run_ferry({"apply", old, patch, "-o", out, "--overwrite"}).code, 0);
  EXPECT_EQ(run_ferry({"apply", made, patch, "-o", dir / "x"}).code, 3);
  EXPECT_EQ(run_ferry({"apply", old, old + "/config.json", "-o", dir / "x"}).code, 3);
  EXPECT_FALSE(fs::exists(dir / "x"));
}

TEST_F(Apply, InPlace) {
  diff();
  const json document = run_ferry({"--json", "apply", old, patch, "--in-place"}).json();
  for (const std::string& problem : schema_problems("apply.json", document)) {
    ADD_FAILURE() << problem;
  }
  EXPECT_GT(document["result"]["linked"], 0);
  EXPECT_EQ(document["result"]["new"], old);
  EXPECT_TRUE(files_in(old) == files_in(made));
  const Outcome again = run_ferry({"apply", old, patch, "--in-place"});
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.out.find("is the new one already"), std::string::npos) << again.out;
}

TEST_F(Apply, TheSignatureIsCheckedBeforeTheBundleAppears) {
  diff();
  const auto apply = [&](const std::string& trusted) {
    return run_ferry({"apply", old, patch, "--in-place", "--public-key", trusted});
  };
  const auto before = files_in(old);
  const Outcome unsigned_bundle = apply(public_key);
  EXPECT_EQ(unsigned_bundle.code, 3);
  EXPECT_NE(unsigned_bundle.err.find("not signed"), std::string::npos) << unsigned_bundle.err;

  ASSERT_EQ(run_ferry({"sign", made, "--key", key}).code, 0);
  diff();
  const Outcome other = apply(fixture("signing_keys/p384.pub.pem"));
  EXPECT_EQ(other.code, 3);
  EXPECT_NE(other.err.find(old + "/model.sig"), std::string::npos) << other.err;

  // The signature is of another state of the bundle.
  const std::string config = read_bytes(made + "/generation_config.json");
  write_bytes(made + "/generation_config.json", config + " ");
  diff();
  const Outcome changed = apply(public_key);
  EXPECT_EQ(changed.code, 3);
  EXPECT_NE(changed.err.find("changed: generation_config.json"), std::string::npos) << changed.err;
  EXPECT_TRUE(files_in(old) == before);

  write_bytes(made + "/generation_config.json", config);
  diff();
  const Outcome good = apply(public_key);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("signed by key"), std::string::npos) << good.out;
  EXPECT_EQ(run_ferry({"check", old, "--public-key", public_key}).code, 0);
  EXPECT_EQ(apply(public_key).code, 0);
}

TEST_F(Apply, WrongLines) {
  diff();
  EXPECT_EQ(run_ferry({"apply", old, patch}).code, 2);
  EXPECT_EQ(run_ferry({"apply", old, patch, "-o", out, "--in-place"}).code, 2);
  EXPECT_EQ(run_ferry({"apply", old, patch, "--in-place", "--overwrite"}).code, 2);
  EXPECT_EQ(run_ferry({"apply", old, patch, "-o", out, "--at", "2027-01-01"}).code, 2);
  EXPECT_EQ(run_ferry({"apply", old, dir / "absent", "-o", out}).code, 5);
}

}  // namespace
}  // namespace ferry::verb_apply_test
