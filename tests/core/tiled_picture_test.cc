#include "core/tiled_picture.h"

#include <gtest/gtest.h>

#include <vector>

namespace ferry::tiled_picture_test {
namespace {

using Resolutions = std::vector<Extent>;

const Resolutions kNext = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
const Resolutions kSmall = {{20, 40}, {40, 20}, {40, 40}, {20, 60}};
// 1 to 6 tiles of 384 pixels down and across.
const Resolutions kOnevision = [] {
  Resolutions sizes;
  for (int64_t rows = 1; rows <= 6; ++rows) {
    for (int64_t columns = 1; columns <= 6; ++columns) sizes.push_back({384 * rows, 384 * columns});
  }
  return sizes;
}();

struct Case {
  Extent picture;
  const Resolutions& resolutions;
  int64_t tile, side, most_tiles;
  Extent best, inside, framed, reduced;
};

// The numbers are those of select_best_resolution() and get_patch_output_size(), and of
// _get_unpadded_features() of both processors, in transformers 5.23.
const Case kCases[] = {
    {{480, 640}, kNext, 336, 24, 9, {672, 672}, {504, 672}, {36, 48}, {36, 48}},
    {{640, 480}, kNext, 336, 24, 9, {672, 672}, {672, 504}, {48, 36}, {48, 36}},
    {{336, 336}, kNext, 336, 24, 9, {336, 672}, {336, 336}, {24, 24}, {24, 24}},
    {{1, 1000}, kNext, 336, 24, 9, {336, 1008}, {2, 1008}, {0, 72}, {0, 72}},
    {{1000, 1}, kNext, 336, 24, 9, {1008, 336}, {1008, 2}, {72, 0}, {72, 0}},
    {{3, 4}, kNext, 336, 24, 9, {336, 672}, {336, 448}, {24, 32}, {24, 32}},
    {{65535, 65535}, kNext, 336, 24, 9, {672, 672}, {672, 672}, {48, 48}, {48, 48}},
    {{1008, 336}, kNext, 336, 24, 9, {1008, 336}, {1008, 336}, {72, 24}, {72, 24}},
    {{337, 1007}, kNext, 336, 24, 9, {336, 1008}, {336, 1005}, {24, 72}, {24, 72}},
    {{480, 640}, kOnevision, 384, 27, 9, {768, 768}, {576, 768}, {40, 54}, {40, 54}},
    {{2304, 2304}, kOnevision, 384, 27, 1, {2304, 2304}, {2304, 2304}, {162, 162}, {27, 27}},
    {{4000, 3000}, kOnevision, 384, 27, 1, {2304, 1920}, {2304, 1728}, {162, 121}, {31, 23}},
    {{1200, 7000}, kOnevision, 384, 27, 9, {768, 2304}, {395, 2304}, {28, 162}, {28, 162}},
    {{5, 2000}, kOnevision, 384, 27, 4, {384, 2304}, {6, 2304}, {1, 162}, {1, 162}},
    {{2303, 2305}, kOnevision, 384, 27, 1, {2304, 2304}, {2303, 2304}, {162, 162}, {27, 27}},
    {{999, 333}, kOnevision, 384, 27, 4, {1152, 384}, {1152, 384}, {81, 27}, {81, 27}},
    {{60, 360}, kSmall, 20, 3, 9, {20, 60}, {10, 60}, {1, 9}, {1, 9}},
    {{5, 7}, kSmall, 20, 3, 9, {20, 40}, {20, 28}, {3, 4}, {3, 4}},
    {{32, 32}, kSmall, 20, 3, 9, {40, 40}, {40, 40}, {6, 6}, {6, 6}},
    {{7, 5}, kSmall, 20, 3, 9, {20, 40}, {20, 15}, {3, 2}, {3, 2}},
};

TEST(TiledPicture, SizesAreThoseOfTheReference) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(testing::Message() << one.picture.rows << " x " << one.picture.columns);
    const Extent best = best_resolution(one.picture, one.resolutions);
    EXPECT_EQ(best, one.best);
    EXPECT_EQ(size_inside(one.picture, best), one.inside);
    const Extent grid = {best.rows / one.tile, best.columns / one.tile};
    const Extent framed = framed_features(one.picture, grid, one.side);
    EXPECT_EQ(framed, one.framed);
    EXPECT_EQ(reduced_features(framed, one.side, one.most_tiles), one.reduced);
    EXPECT_EQ(reduced_features(framed, one.side, 0), one.framed);
  }
}

TEST(TiledPicture, ResolutionsAreOfWholeTilesWithinTheLimits) {
  EXPECT_TRUE(is_resolution({336, 672}, 336));
  EXPECT_TRUE(is_resolution({16, 16}, 1));
  EXPECT_FALSE(is_resolution({17, 16}, 1)) << "more than 256 tiles";
  EXPECT_FALSE(is_resolution({336, 600}, 336));
  EXPECT_FALSE(is_resolution({0, 336}, 336));
  EXPECT_FALSE(is_resolution({-336, -336}, 336));
  EXPECT_FALSE(is_resolution({336, 336}, 0));
  EXPECT_FALSE(is_resolution({8192, 8194}, 4097));
  EXPECT_TRUE(is_resolution({8192, 8192}, 8192));
  EXPECT_FALSE(is_resolution({int64_t{1} << 40, int64_t{1} << 40}, int64_t{1} << 40));
}

}  // namespace
}  // namespace ferry::tiled_picture_test
