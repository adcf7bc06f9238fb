// ferry check of files that are not bundles: every value is read, and damage is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_check_test {
namespace {

namespace fs = std::filesystem;

// Returns a copy of a file of testdata with one byte changed.
std::string damaged(const TempDir& dir, const std::string& name, size_t at) {
  std::string bytes = read_bytes(fixture(name));
  EXPECT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
  const std::string path = dir / fs::path(name).filename().string();
  write_bytes(path, bytes);
  return path;
}

void expect_damage(const std::string& path, const std::string& says) {
  const Outcome outcome = run_ferry({"check", path});
  EXPECT_EQ(outcome.code, 1) << path << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(fs::path(path).filename().string()), std::string::npos) << outcome.err;
  const nlohmann::json result =
      run_program(FERRY_BINARY, {"check", path, "--json"}).json()["result"];
  EXPECT_EQ(result["problems"].size(), 1U) << result;
  EXPECT_TRUE(result["bundle"].is_null());
}

TEST(CheckFiles, WholeOnesPass) {
  for (const char* name :
       {"llama3_tied", "llama3_tied/model.safetensors", "llama3_tied_bin", "official_pte/dyn.pte",
        "official_pte/linear_ext.ptd", "xnnpack/linear_8da4w_g32_bias.pte"}) {
    const Outcome outcome = run_ferry({"check", fixture(name)});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(": every value read: "), std::string::npos) << outcome.out;
  }
}

// `inspect` reads no values, and so accepts the file. `check` finds the wrong CRC.
TEST(CheckFiles, AWrongCrcIsDamage) {
  const TempDir dir;
  const std::string name = "llama3_tied_bin/pytorch_model.bin";
  const std::string path = damaged(dir, name, read_bytes(fixture(name)).size() / 2);
  const Outcome listed = run_ferry({"inspect", path});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_NE(listed.out.find("Values were not read; `ferry check " + path + "` reads them."),
            std::string::npos)
      << listed.out;
  EXPECT_EQ(run_ferry({"inspect", path, "--json"}).json()["result"]["values_read"], false);
  expect_damage(path, "CRC");
}

// The damaged byte is the sixth of the first compressed chunk.
TEST(CheckFiles, AChunkThatDoesNotInflateIsDamage) {
  const TempDir dir;
  const std::string bytes = read_bytes(fixture("hdf5/layouts.h5"));
  const size_t chunk = bytes.find("\x78\xda", 1024);
  ASSERT_NE(chunk, std::string::npos);
  const std::string path = damaged(dir, "hdf5/layouts.h5", chunk + 6);
  EXPECT_EQ(run_ferry({"inspect", path}).code, 0);
  expect_damage(path, "a chunk does not inflate to 24 bytes (tensor 'chunked_2'");
}

TEST(CheckFiles, TruncationIsDamage) {
  const TempDir dir;
  for (const char* name :
       {"llama3_tied/model.safetensors", "official_pte/dyn.pte", "official_pte/linear_ext.ptd"}) {
    std::string bytes = read_bytes(fixture(name));
    bytes.resize(bytes.size() - 8);
    const std::string path = dir / fs::path(name).filename().string();
    write_bytes(path, bytes);
    expect_damage(path, ": ");
  }
}

TEST(CheckFiles, AScaleThatIsNotPositiveIsDamage) {
  const TempDir dir;
  const std::string name = "xnnpack/linear_8da4w_g32_bias.pte";
  std::string bytes = read_bytes(fixture(name));
  // bf16 scales near 0.01 are the only place where three values have high bytes near 0x3c.
  size_t scale = 0;
  for (size_t i = bytes.size() / 2; scale == 0 && i + 8 < bytes.size(); ++i) {
    const auto high = [&](size_t k) { return static_cast<unsigned char>(bytes[i + 2 * k + 1]); };
    if (high(0) - 0x3bU < 3 && high(1) - 0x3bU < 3 && high(2) - 0x3bU < 3) scale = i;
  }
  ASSERT_NE(scale, 0U);
  bytes.replace(scale, 2, std::string(2, '\0'));
  write_bytes(dir / "x.pte", bytes);
  expect_damage(dir / "x.pte", "is not positive and normal");
}

TEST(CheckFiles, WhatCannotBeCheckedIsNoDamage) {
  const TempDir dir;
  write_bytes(dir / "x.txt", "not a checkpoint at all");
  EXPECT_EQ(run_ferry({"check", dir / "x.txt"}).code, 3);
  fs::create_directory(dir / "empty");
  EXPECT_EQ(run_ferry({"check", dir / "empty"}).code, 3);
  EXPECT_EQ(run_ferry({"check", dir / "absent"}).code, 5);
}

}  // namespace
}  // namespace ferry::verb_check_test
