#include "proof/weight_proof.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

namespace ferry::proof::quantization_error_test {
namespace {

using graph::QuantizationScheme;
using graph::ScaleMethod;

constexpr int64_t kColumns = 64, kRows = 16;

const QuantizationScheme kSchemes[] = {
    {.bits = 4, .group = 32, .scale_dtype = DType::kBF16},
    {.bits = 4, .group = 32, .scale_dtype = DType::kBF16, .method = ScaleMethod::kHqq},
    {.bits = 4, .group = 8, .scale_dtype = DType::kF32},
    {.bits = 8},
    {.bits = 8, .method = ScaleMethod::kHqq},
};

struct Coded {
  std::vector<std::byte> codes, scales;
};

Coded coded(const QuantizationScheme& scheme, const std::vector<float>& values) {
  Coded made;
  made.codes.resize(kRows * scheme.code_bytes(kColumns));
  made.scales.resize(kRows * scheme.scale_bytes(kColumns));
  EXPECT_EQ(graph::quantize_rows(scheme, values, kColumns, made.codes, made.scales), 0u);
  return made;
}

QuantizationError error_of(const QuantizationScheme& scheme, const std::vector<float>& values,
                           const Coded& made) {
  QuantizationError error;
  error.add_rows(scheme, 0, kColumns, values, made.codes, made.scales);
  return error;
}

std::vector<float> random_values(const std::function<float(std::mt19937&)>& draw) {
  std::mt19937 random(7);
  std::vector<float> values(kRows * kColumns);
  for (float& value : values) value = draw(random);
  return values;
}

float normal(std::mt19937& random) { return std::normal_distribution<float>(0, 0.02f)(random); }
float rarely_large(std::mt19937& random) {
  return normal(random) * (random() % 50 == 0 ? 500.0f : 1.0f);
}
float one_sided(std::mt19937& random) { return std::fabs(normal(random)) + 0.1f; }
float two_values(std::mt19937& random) { return random() % 2 == 0 ? 0.3f : -1.0f; }
float tiny(std::mt19937& random) { return normal(random) * 1e-9f; }
float denormal(std::mt19937& random) { return normal(random) * 1e-38f; }
float zero(std::mt19937&) { return 0; }

TEST(QuantizationError, NoScaleOfOursIsCoarse) {
  for (const auto& draw : {normal, rarely_large, one_sided, two_values, tiny, denormal, zero}) {
    const std::vector<float> values = random_values(draw);
    for (const QuantizationScheme& scheme : kSchemes) {
      const QuantizationError error = error_of(scheme, values, coded(scheme, values));
      EXPECT_EQ(error.coarse, 0) << scheme.bits << " bits, group " << scheme.group;
      EXPECT_EQ(error.misplaced, 0) << scheme.bits << " bits, group " << scheme.group;
    }
  }
}

// The codes are the nearest ones for a scale that is four times too large.
TEST(QuantizationError, AScaleThatIsTooLargeIsCoarse) {
  const QuantizationScheme scheme = {.bits = 8};
  const std::vector<float> values = random_values(normal);
  Coded made = coded(scheme, values);
  constexpr int64_t kRow = 5;
  float scale = 0;
  std::memcpy(&scale, made.scales.data() + kRow * sizeof scale, sizeof scale);
  scale *= 4;
  std::memcpy(made.scales.data() + kRow * sizeof scale, &scale, sizeof scale);
  for (int64_t i = kRow * kColumns; i < (kRow + 1) * kColumns; ++i) {
    const auto at = static_cast<size_t>(i);
    made.codes[at] =
        static_cast<std::byte>(static_cast<int8_t>(std::nearbyint(values[at] / scale)));
  }
  const QuantizationError error = error_of(scheme, values, made);
  EXPECT_EQ(error.misplaced, 0);
  EXPECT_EQ(error.coarse, 1);
  EXPECT_EQ(error.coarse_row, kRow);
  EXPECT_EQ(error.coarse_group, 0);
}

// The codes are clamped.
TEST(QuantizationError, AScaleThatIsTooSmallIsCoarse) {
  const QuantizationScheme scheme = {.bits = 4, .group = 32, .scale_dtype = DType::kF32};
  std::vector<float> values(kRows * kColumns, 0.7f), small(kRows * kColumns, 0.1f);
  const QuantizationError error = error_of(scheme, values, coded(scheme, small));
  EXPECT_EQ(error.coarse, kRows * 2);
  EXPECT_EQ(error.coarse_row, 0);
}

}  // namespace
}  // namespace ferry::proof::quantization_error_test
