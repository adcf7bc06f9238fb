#include "runner/picture_tiles.h"

#include <gtest/gtest.h>

namespace ferry::runner::picture_tiles_test {
namespace {

packer::Manifest model(std::vector<int64_t> resolutions, int64_t most_tiles = 0) {
  packer::Manifest manifest;
  manifest.image_tiles = {std::move(resolutions), most_tiles};
  return manifest;
}

// Tiles of 4 x 4 pixels with 2 x 2 features and a newline.
PictureTiles tiles_of_four(std::vector<int64_t> resolutions, int64_t most_tiles = 0) {
  return *PictureTiles::in(model(std::move(resolutions), most_tiles), {1, 3, 4, 4}, {1, 5, 1});
}

// Features are 10 x tile + place, newlines -1.
std::vector<float> features(int tiles) {
  std::vector<float> out;
  for (int tile = 0; tile < tiles; ++tile) {
    for (int place = 0; place < 4; ++place) out.push_back(static_cast<float>(10 * tile + place));
    out.push_back(-1);
  }
  return out;
}

std::vector<float> packed(const PictureTiles& tiles, std::vector<ImageShape> pictures, int count) {
  auto rows = pack_pictures(tiles, pictures, features(count), 1, "here");
  EXPECT_TRUE(rows) << rows.error().message;
  return rows.value_or(std::vector<float>());
}

TEST(PictureTiles, RowsOfAGridEndWithANewline) {
  const PictureTiles tiles = tiles_of_four({8, 8});
  EXPECT_EQ(tiles.tiles_of({8, 8}), 5);
  EXPECT_EQ(packed(tiles, {{8, 8}}, 5),
            (std::vector<float>{0,  1,  2,  3,  10, 11, 20, 21, -1, 12, 13, 22,
                                23, -1, 30, 31, 40, 41, -1, 32, 33, 42, 43, -1}));
  EXPECT_EQ(tiles.rows_of({8, 8}, 5), 24);
}

TEST(PictureTiles, FeaturesOfTheFrameAreLeftOut) {
  const PictureTiles tiles = tiles_of_four({8, 8});
  EXPECT_EQ(packed(tiles, {{4, 8}}, 5),
            (std::vector<float>{0, 1, 2, 3, 12, 13, 22, 23, -1, 30, 31, 40, 41, -1}));
  EXPECT_EQ(packed(tiles, {{8, 4}}, 5),
            (std::vector<float>{0, 1, 2, 3, 11, 20, -1, 13, 22, -1, 31, 40, -1, 33, 42, -1}));
  // Nothing but newlines is left of a narrow picture, and of a wide one nothing.
  EXPECT_EQ(packed(tiles, {{1000, 1}}, 5), (std::vector<float>{0, 1, 2, 3, -1, -1, -1, -1}));
  EXPECT_EQ(packed(tiles, {{1, 1000}}, 5), (std::vector<float>{0, 1, 2, 3}));
}

// 8 x 8 pixels have 4 x 4 features, which are reduced to those of a tile, 2 x 2.
TEST(PictureTiles, TooManyFeaturesAreReduced) {
  const PictureTiles tiles = tiles_of_four({8, 8}, 1);
  EXPECT_EQ(packed(tiles, {{8, 8}}, 5),
            (std::vector<float>{0, 1, 2, 3, 11.5, 21.5, -1, 31.5, 41.5, -1}));
  EXPECT_EQ(tiles.rows_of({8, 8}, 5), 10);
}

// 3 x 3 features become 2 x 2, as torch's interpolate() makes them; the newline is behind the last
// frame.
TEST(PictureTiles, FramesOfAVideoHaveFewerFeatures) {
  const PictureTiles tiles = *PictureTiles::in(model({8, 8}), {1, 3, 4, 4}, {1, 10, 1});
  EXPECT_EQ(tiles.rows_of_frame(), 4);
  std::vector<float> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back(i % 10 == 9 ? -1.0F : static_cast<float>(i));
  }
  EXPECT_EQ(pool_video(tiles, values, 1),
            (std::vector<float>{1, 2.5, 5.5, 7, 11, 12.5, 15.5, 17, -1}));
  EXPECT_EQ(tiles_of_four({8, 8}).rows_of_frame(), 1);
}

TEST(PictureTiles, PicturesOfOneTileHaveItsNewline) {
  const PictureTiles tiles = tiles_of_four({8, 8});
  EXPECT_EQ(packed(tiles, {{8, 8}, {3, 9}}, 2),
            (std::vector<float>{0, 1, 2, 3, -1, 10, 11, 12, 13, -1}));
}

TEST(PictureTiles, OtherNumbersOfTilesAreRefused) {
  const PictureTiles tiles = tiles_of_four({8, 8, 4, 8});
  const auto refused = [&](std::vector<ImageShape> pictures, int64_t count,
                           const std::string& message) {
    const auto counts = tiles.tiles_of(pictures, count, "here");
    ASSERT_FALSE(counts);
    EXPECT_EQ(counts.error().code, ErrorCode::kBadInput);
    EXPECT_NE(counts.error().message.find(message), std::string::npos) << counts.error().message;
  };
  EXPECT_EQ(*tiles.tiles_of(std::vector<ImageShape>{{8, 8}, {4, 8}}, 8, "here"),
            (std::vector<int64_t>{5, 3}));
  refused({{8, 8}, {4, 8}}, 7, "here: 7 tiles of 2 pictures, which by their sizes have 8");
  refused({{8, 8}}, 0, "0 tiles of 1 pictures");
  refused({{0, 8}}, 5, "a side that is not from 1 to 1048576 pixels");
  refused({{8, INT64_MAX}}, 5, "a side that is not from 1 to 1048576 pixels");
  refused({{INT64_MIN, 8}}, 5, "a side that is not from 1 to 1048576 pixels");
}

TEST(PictureTiles, ManifestsThatDoNotFitHaveNone) {
  const auto fits = [](const packer::Manifest& manifest, const Shape& pixels,
                       const Shape& features) {
    return PictureTiles::in(manifest, pixels, features).has_value();
  };
  const Shape pixels = {1, 3, 4, 4}, features = {1, 5, 1};
  EXPECT_TRUE(fits(model({4, 8}), pixels, features));
  EXPECT_FALSE(fits(packer::Manifest{}, pixels, features));
  EXPECT_FALSE(fits(model({}), pixels, features));
  EXPECT_FALSE(fits(model({4, 6}), pixels, features));
  EXPECT_FALSE(fits(model({4, 8}, -1), pixels, features));
  EXPECT_FALSE(fits(model({4, 8}), {1, 4, 4}, features));
  EXPECT_FALSE(fits(model({4, 8}), pixels, {1, 4, 1}));
  EXPECT_FALSE(fits(model({4, 8}), pixels, {1, 1, 1}));
  EXPECT_FALSE(fits(model({4, 8}), pixels, {1, 0, 1}));
  EXPECT_FALSE(fits(model({4, 8}), pixels, {5, 1}));
}

}  // namespace
}  // namespace ferry::runner::picture_tiles_test
