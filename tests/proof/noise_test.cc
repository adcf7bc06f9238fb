#include "proof/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/tensor_source.h"

namespace ferry::proof::noise_test {
namespace {

constexpr int64_t kRows = 16, kChannels = 64;

// Returns deterministic values around 0 with a standard deviation of about 1.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  float next() {
    float sum = 0;
    for (int i = 0; i < 12; ++i) {
      state_ = state_ * 6364136223846793005 + 1442695040888963407;
      sum += static_cast<float>(state_ >> 40) / static_cast<float>(1 << 24);
    }
    return sum - 6;
  }

 private:
  uint64_t state_;
};

// Trained models have such tensors: the first row is a thousand times larger, in one channel.
std::vector<float> hidden_states() {
  Random random(1);
  std::vector<float> values(kRows * kChannels);
  for (float& value : values) value = random.next();
  values[5] = 25000;
  return values;
}

// Adds noise in proportion to the values: the large value has a larger rounding error.
std::vector<float> with_noise(std::vector<float> values, uint64_t seed, float size) {
  Random random(seed);
  for (float& value : values) value += size * (std::fabs(value) > 100 ? 1000 : 1) * random.next();
  return values;
}

MemorySource source_of(const std::vector<float>& values) {
  MemorySource source("test");
  source.add("input_ids", DType::kI64, {1, kRows}, std::vector<int64_t>(kRows, 1));
  source.add("hidden_states.1", DType::kF32, {1, kRows, kChannels}, values);
  return source;
}

class Noise : public testing::Test {
 protected:
  void SetUp() override {
    const MemorySource exact = source_of(exact_);
    const MemorySource drawn = source_of(with_noise(exact_, 7, 1e-5F));
    const Reference base = *Reference::open(exact), draw = *Reference::open(drawn);
    const Reference* const draws[] = {&draw};
    ASSERT_TRUE(model_.add(base, draws));
  }

  double ratio_of(const std::vector<float>& got) const {
    NoiseComparison comparison(*model_.find("", "hidden_states.1"));
    comparison.add(got, exact_);
    return comparison.ratio();
  }

  const std::vector<float> exact_ = hidden_states();
  NoiseModel model_;
};

TEST_F(Noise, OtherDrawsOfTheSameNoiseHaveARatioOfAboutOne) {
  for (uint64_t seed = 20; seed < 40; ++seed) {
    const double ratio = ratio_of(with_noise(exact_, seed, 1e-5F));
    EXPECT_GT(ratio, 0.3);
    EXPECT_LT(ratio, 3);
  }
  EXPECT_NEAR(ratio_of(with_noise(exact_, 20, 1e-4F)) / ratio_of(with_noise(exact_, 20, 1e-5F)), 10,
              1);
}

TEST_F(Noise, OneWrongValueIsSeenBesideALargeOne) {
  std::vector<float> got = with_noise(exact_, 20, 1e-5F);
  got[3 * kChannels + 9] += 0.01F;  // less than a millionth of the largest value
  EXPECT_GT(ratio_of(got), 100);
}

TEST_F(Noise, AChannelThatDiffersALittleEverywhereIsSeen) {
  std::vector<float> got = with_noise(exact_, 20, 1e-5F);
  const double before = ratio_of(got);
  for (int64_t row = 0; row < kRows; ++row) got[static_cast<size_t>(row * kChannels + 30)] += 2e-4F;
  EXPECT_GT(ratio_of(got), 8 * before / 3);
}

TEST_F(Noise, EqualValuesHaveNone) { EXPECT_EQ(ratio_of(exact_), 0); }

TEST_F(Noise, ValuesWithoutAPlaceAreBeyondAnyMultiple) {
  const TensorNoise& noise = *model_.find("", "hidden_states.1");
  NoiseComparison row(noise), whole(noise);
  row.add(kRows, 0, std::vector<float>(kChannels), std::vector<float>(kChannels));
  whole.add(std::vector<float>(kChannels), std::vector<float>(kChannels));
  EXPECT_GT(row.ratio(), 1e9);
  EXPECT_GT(whole.ratio(), 1e9);
}

TEST_F(Noise, NaNIsBeyondAnyMultiple) {
  std::vector<float> got = exact_;
  got[100] = std::nanf("");
  EXPECT_GT(ratio_of(got), 1e9);
}

TEST(NoiseLayout, HeadsOfACacheAreBesideEachOther) {
  const NoiseLayout layout = noise_layout("cache.3.key", {1, 2, 5, 8});
  EXPECT_EQ(layout.rows, 5);
  EXPECT_EQ(layout.channels, 16);
  EXPECT_EQ(layout.part(), 8);
  EXPECT_EQ(noise_layout("logits", {1, 5, 100}).rows, 5);
  EXPECT_EQ(noise_layout("cache.0.recurrent_state", {1, 2, 5, 8}).rows, 10);
}

}  // namespace
}  // namespace ferry::proof::noise_test
