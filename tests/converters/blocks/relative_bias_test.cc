// Buckets are those of T5Attention._relative_position_bucket of transformers 5.23.
#include "converters/blocks/relative_bias.h"

#include <gtest/gtest.h>

namespace ferry::converters {
namespace {

constexpr int64_t kDistances[] = {0,  1,  2,   3,   5,   8,  11, 12, 16, 17,  19,  20,
                                  32, 64, 127, 128, 500, -1, -2, -7, -8, -16, -64, -128};

struct BucketCase {
  bool two_way;
  RelativeBiasConfig config;
  std::vector<int64_t> buckets;
};

TEST(RelativeBias, BucketsAreThoseOfTheReference) {
  const BucketCase cases[] = {
      {true, {.buckets = 32, .farthest = 128}, {0,  1,  2,  3,  5,  8,  8,  9,  10, 10, 10, 10,
                                                12, 14, 15, 15, 15, 17, 18, 23, 24, 26, 30, 31}},
      {false, {.buckets = 32, .farthest = 128}, {0,  1,  2,  3,  5,  8, 11, 12, 16, 16, 17, 17,
                                                 21, 26, 31, 31, 31, 0, 0,  0,  0,  0,  0,  0}},
      {true, {.buckets = 7, .farthest = 20}, {0, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2,
                                              2, 2, 2, 2, 2, 4, 4, 5, 5, 5, 5, 5}},
      {false, {.buckets = 12, .farthest = 20}, {0,  1,  2,  3,  5,  7, 9, 9, 10, 11, 11, 11,
                                                11, 11, 11, 11, 11, 0, 0, 0, 0,  0,  0,  0}},
      {true, {.buckets = 4, .farthest = 3}, {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                             1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3}},
  };
  for (const BucketCase& one : cases) {
    std::vector<int64_t> got;
    for (const int64_t distance : kDistances) {
      got.push_back(distance_bucket(one.config, one.two_way, distance));
    }
    EXPECT_EQ(got, one.buckets) << one.config.buckets << " " << one.two_way;
  }
}

}  // namespace
}  // namespace ferry::converters
