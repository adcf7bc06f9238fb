#include "core/image_grid.h"

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::image_grid_test {
namespace {

using Json = nlohmann::json;

ImageGrid grid_of(const Json& one) { return {4, 2, one["merge"], one["window"], one["table"]}; }

// Transformers makes the same of these shapes (tests/conformance/make_vision_golden.py grids).
TEST(ImageGrid, InputsAreThoseOfTheReference) {
  const Json golden = Json::parse(read_bytes(fixture("vision/grids.json")));
  ASSERT_GE(golden["images"].size(), 5u);
  for (const Json& one : golden["images"]) {
    SCOPED_TRACE(one.dump().substr(0, 80));
    const GridInputs made = grid_inputs(grid_of(one), {one["rows"], one["columns"]});
    EXPECT_EQ(made.blocks, one["blocks"].get<std::vector<int64_t>>());
    EXPECT_EQ(made.positions, one["positions"].get<std::vector<int64_t>>());
    EXPECT_EQ(made.windows, one["windows"].get<std::vector<int64_t>>());
    if (one["table"] == 0) {
      EXPECT_TRUE(made.table_rows.empty() && made.table_weights.empty());
      continue;
    }
    EXPECT_EQ(made.table_rows, one["table_rows"].get<std::vector<int64_t>>());
    EXPECT_EQ(made.table_weights, one["table_weights"].get<std::vector<float>>());
  }
}

TEST(ImageGrid, BlocksComeBackInTheirOrder) {
  const std::vector<float> values = {0, 1, 10, 11, 20, 21};
  const int64_t order[] = {2, 0, 1};
  const std::vector<float> taken = take_blocks(values, order);
  EXPECT_EQ(taken, (std::vector<float>{20, 21, 0, 1, 10, 11}));
  std::vector<float> back(9, -1);
  put_blocks(taken, order, 2, 3, back.data());
  EXPECT_EQ(back, (std::vector<float>{0, 1, -1, 10, 11, -1, 20, 21, -1}));
  EXPECT_TRUE(take_blocks({}, {}).empty());
}

// Blocks of 2 x 2 patches of one pixel, of an image of 2 x 4 in planes of 3 x 5.
TEST(ImageGrid, PatchesOfPlanesAreInTheOrderOfBlocks) {
  const ImageGrid grid = {1, 1, 2, 0, 0};
  std::vector<float> planes(45);
  for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<float>(i);
  std::vector<float> expected;
  for (const int place : {0, 1, 5, 6, 2, 3, 7, 8}) {
    for (const int channel : {0, 15, 30}) expected.push_back(static_cast<float>(channel + place));
  }
  EXPECT_EQ(patches_of_planes(planes, 3, 5, grid, {2, 4}), expected);
}

TEST(ImageGrid, OnlyWholeBlocksWithinTheBoundAreAccepted) {
  const ImageGrid grid = {4, 2, 2, 0, 0};
  EXPECT_TRUE(check_image_shape(grid, {4, 6}, 6, "b"));
  const ImageShape odd[] = {{3, 2}, {2, 5}, {0, 2}, {2, 0}, {-2, -2}};
  for (const ImageShape& shape : odd) {
    EXPECT_NE(check_image_shape(grid, shape, 6, "b").error().message.find("whole blocks of 2 x 2"),
              std::string::npos);
  }
  const ImageShape large[] = {{4, 8}, {14, 2}, {int64_t{1} << 40, int64_t{1} << 40}};
  for (const ImageShape& shape : large) {
    const Error error = check_image_shape(grid, shape, 6, "b").error();
    EXPECT_EQ(error.code, ErrorCode::kBadInput);
    EXPECT_NE(error.message.find("takes 24 patches at most"), std::string::npos) << error.message;
  }
}

}  // namespace
}  // namespace ferry::image_grid_test
