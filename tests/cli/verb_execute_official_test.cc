// ferry execute: programs of one operator by the official exporter, with the outputs of the
// official runtime.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_execute_official_test {
namespace {

std::vector<float> floats_in(const std::string& path) {
  const std::string bytes = read_bytes(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

class ExecuteOfficial : public testing::TestWithParam<const char*> {};

TEST_P(ExecuteOfficial, GivesWhatTheOfficialRuntimeGives) {
  const std::string base = fixture("official_images/" + std::string(GetParam()));
  TempDir dir;
  std::string line;
  for (int i = 0; std::filesystem::exists(base + ".in0_" + std::to_string(i) + ".bin"); ++i) {
    line += base + ".in0_" + std::to_string(i) + ".bin ";
  }
  write_bytes(dir / "script", line + "\n");
  const Outcome run = run_ferry(
      {"execute", base + ".pte", "--script", dir / "script", "--outdir", dir / "out", "--poison"});
  ASSERT_EQ(run.code, 0) << run.err;
  const std::vector<float> got = floats_in((dir / "out") + "/run0_out0.bin");
  const std::vector<float> want = floats_in(base + ".ref0_0.bin");
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(want.empty());
  float largest = 0;
  for (const float value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-6F * largest) << "value " << i;
  }
  if (!std::filesystem::exists(base + ".ref0_1.bin")) return;  // indices
  EXPECT_EQ(read_bytes((dir / "out") + "/run0_out1.bin"), read_bytes(base + ".ref0_1.bin"));
}

INSTANTIATE_TEST_SUITE_P(
    OneOperator, ExecuteOfficial,
    testing::Values("adaptive", "adaptive1-x", "avgpool_ceil", "avgpool_nopad-x", "bilinear",
                    "bilinear_corners-x", "conv2d_depthwise", "conv2d_depthwise_mult-x",
                    "conv2d_grouped-x", "conv2d_relu6-q", "conv2d_strided-x", "conv_transpose2d-x",
                    "conv_transpose2d_dilated", "groupnorm", "maxpool_ceil-x", "maxpool_indices",
                    "nearest_odd", "pad-x", "pad_reflect", "prelu-x", "scatter_add", "var_corr"));

}  // namespace
}  // namespace ferry::verb_execute_official_test
