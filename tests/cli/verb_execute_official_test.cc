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

void expect_close_values(const std::string& got_file, const std::string& want_file) {
  const std::vector<float> got = floats_in(got_file), want = floats_in(want_file);
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(want.empty());
  float largest = 0;
  for (const float value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 2e-6F * largest) << "value " << i;
  }
}

TEST_P(ExecuteOfficial, GivesWhatTheOfficialRuntimeGives) {
  const std::string base = fixture(GetParam());
  TempDir dir;
  std::string line;
  for (int i = 0; std::filesystem::exists(base + ".in0_" + std::to_string(i) + ".bin"); ++i) {
    line += base + ".in0_" + std::to_string(i) + ".bin ";
  }
  write_bytes(dir / "script", line + "\n");
  const Outcome run = run_ferry(
      {"execute", base + ".pte", "--script", dir / "script", "--outdir", dir / "out", "--poison"});
  ASSERT_EQ(run.code, 0) << run.err;
  for (int i = 0; i == 0 || std::filesystem::exists(base + ".ref0_" + std::to_string(i) + ".bin");
       ++i) {
    const std::string got = (dir / "out") + "/run0_out" + std::to_string(i) + ".bin";
    const std::string want = base + ".ref0_" + std::to_string(i) + ".bin";
    if (i == 1 && base.ends_with("indices")) {
      EXPECT_EQ(read_bytes(got), read_bytes(want));
    } else {
      expect_close_values(got, want);
    }
  }
}

// Three images, where the program states six at most.
TEST(ExecuteChannelsLast, PoolsAnyNumberOfImages) {
  const std::string base = fixture("official_images/channels_last_pool-x");
  const TempDir dir;
  write_bytes(dir / "script", base + ".in0_0.bin@3,3,2,8\n");
  const Outcome run = run_ferry(
      {"execute", base + ".pte", "--script", dir / "script", "--outdir", dir / "out", "--poison"});
  ASSERT_EQ(run.code, 0) << run.err;
  expect_close_values(dir / "out/run0_out0.bin", base + ".ref0_0.bin");
  EXPECT_EQ(run_ferry({"inspect", base + ".pte"}).code, 0);
}

INSTANTIATE_TEST_SUITE_P(
    OneOperator, ExecuteOfficial,
    testing::Values("official_images/adaptive", "official_images/adaptive1-x",
                    "official_images/avgpool_ceil", "official_images/avgpool_nopad-x",
                    "official_images/bilinear", "official_images/bilinear_corners-x",
                    "official_images/channels_last", "official_images/channels_last-x",
                    "official_images/channels_last-q", "official_images/channels_last_inside",
                    "official_images/conv2d_depthwise", "official_images/conv2d_depthwise_mult-x",
                    "official_images/conv2d_grouped-x", "official_images/conv2d_relu6-q",
                    "official_images/conv2d_strided-x", "official_images/conv_transpose2d-x",
                    "official_images/conv_transpose2d_dilated", "official_images/groupnorm",
                    "official_images/maxpool_ceil-x", "official_images/maxpool_indices",
                    "official_images/nearest_odd", "official_images/pad-x",
                    "official_images/pad_reflect", "official_images/prelu-x",
                    "official_images/scatter_add", "official_images/var_corr",
                    "official_ops/delta_grouped", "official_ops/delta_scalar",
                    "official_ops/hadamard64", "official_ops/hadamard448",
                    "official_ops/shift_left", "official_ops/shift_right", "official_ops/cdist",
                    "official_ops/pdist", "official_ops/rfft30", "official_ops/irfft2",
                    "official_ops/log_mel", "official_ops/tile_crop", "official_ops/map",
                    "official_ops/scan", "official_ops/cond", "official_ops/not_cond"));

}  // namespace
}  // namespace ferry::verb_execute_official_test
