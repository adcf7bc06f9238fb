// Images of reference prompts: their tiles, rows and placeholders.
#include "proof/prompt_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/program_interface.h"

namespace ferry::proof::prompt_images_test {
namespace {

class MemorySource : public TensorSource {
 public:
  template <class T>
  MemorySource& add(const std::string& name, DType dtype, Shape shape, std::vector<T> values) {
    const auto bytes = std::as_bytes(std::span(values));
    entries_.push_back({.name = name,
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .bytes = bytes.size(),
                        .file = 0,
                        .offset = data_.size()});
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  MemorySource& ids(std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return add("input_ids", DType::kI64, {1, count}, std::move(values));
  }
  // Adds `tiles` of [3,2,2], each filled with its value.
  MemorySource& pixels(const std::vector<float>& tiles, bool batch) {
    std::vector<float> values;
    for (const float tile : tiles) values.insert(values.end(), 12, tile);
    Shape shape = {static_cast<int64_t>(tiles.size()), 3, 2, 2};
    if (batch) shape.insert(shape.begin(), 1);
    return add("pixel_values", DType::kF32, std::move(shape), std::move(values));
  }
  MemorySource& features(int64_t rows, int64_t width) {
    std::vector<float> values;
    for (int64_t i = 0; i < rows * width; ++i) values.push_back(static_cast<float>(i));
    return add("image_features", DType::kF32, {1, rows, width}, std::move(values));
  }

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const auto from = std::span(data_).subspan(entries_[index].offset + offset, out.size());
    std::ranges::copy(from, out.begin());
    return {};
  }

 private:
  std::string path_ = "golden";
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::byte> data_;
};

// Tiles of [3,2,2] become two rows of four.
packer::Manifest model(std::optional<int64_t> placeholder) {
  packer::ManifestMethod forward;
  forward.name = kForwardMethod;
  forward.inputs = {{std::string(kPixelValuesPort), DType::kF32, {1, 3, 2, 2}}};
  forward.outputs = {{std::string(kImageFeaturesPort), DType::kF32, {1, 2, 4}}};
  packer::ManifestProgram program;
  program.methods = {forward};
  packer::Manifest manifest;
  manifest.hidden_size = 4;
  manifest.vocab_size = 100;
  manifest.image_token_id = placeholder;
  manifest.components = {{std::string(kVisionEncoderRole), {program}}};
  return manifest;
}

Result<PromptImages> images(const MemorySource& source, std::optional<int64_t> placeholder = 9) {
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), model(placeholder));
}

void expect_refused(const MemorySource& source, std::optional<int64_t> placeholder,
                    const std::string& message) {
  const auto made = images(source, placeholder);
  ASSERT_FALSE(made) << message;
  EXPECT_EQ(made.error().code, ErrorCode::kBadInput);
  EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  EXPECT_TRUE(made.error().message.starts_with("golden: prompt")) << made.error().message;
}

TEST(PromptImages, RowsHaveThePlacesOfPlaceholders) {
  MemorySource source;
  source.ids({1, 9, 2, 9, 9, 9, 3}).features(4, 4);
  const auto made = images(source);
  ASSERT_TRUE(made) << made.error().message;
  const auto rows = made->rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].first, 1);
  EXPECT_EQ(std::vector(rows[0].values.begin(), rows[0].values.end()),
            (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(rows[1].first, 3);
  EXPECT_EQ(rows[1].values.size(), 12u);
  EXPECT_EQ(rows[1].values.front(), 4.0F);
}

TEST(PromptImages, OneRunForEachTile) {
  for (const bool batch : {false, true}) {
    MemorySource source;
    source.ids({9, 9, 5, 9, 9}).pixels({0.5F, -1}, batch);
    const auto made = images(source);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->pixel_shape, (Shape{2, 3, 2, 2}));
    EXPECT_EQ(made->runs.size(), 2u);
    EXPECT_TRUE(made->features.empty());
  }
}

// In a batch, tiles of zeros pad the shorter samples. Elsewhere they are images.
TEST(PromptImages, TilesOfZerosPadBatchesOnly) {
  MemorySource padded;
  padded.ids({9, 9, 9, 9}).pixels({0.5F, -1, 0}, /*batch=*/true);
  EXPECT_EQ(images(padded)->pixel_shape, (Shape{2, 3, 2, 2}));
  MemorySource between;
  between.ids({9, 9, 9, 9}).pixels({0.5F, 0, -1}, /*batch=*/true);
  const auto kept = images(between);
  EXPECT_EQ(kept->pixels.back(), -1.0F);
  EXPECT_EQ(kept->pixels.size(), 24u);
  MemorySource tiles;
  tiles.ids({9, 9, 9, 9}).pixels({0.5F, 0}, /*batch=*/false);
  EXPECT_EQ(images(tiles)->pixel_shape, (Shape{2, 3, 2, 2}));
}

TEST(PromptImages, ThePlaceholderOfAModelThatStatesNoneIsFoundByItsNumber) {
  MemorySource source;
  source.ids({1, 1, 1, 7, 7, 2}).pixels({1}, false);
  EXPECT_EQ(images(source, std::nullopt)->runs.front().first, 3);
  MemorySource several;
  several.ids({1, 1, 7, 7, 2}).pixels({1}, false);
  expect_refused(several, std::nullopt,
                 "the bundle states no image_token_id, and tokens 1 and 7 both occur 2 times");
  EXPECT_EQ(images(several, 7)->runs.front().first, 2);
  MemorySource none;
  none.ids({1, 7, 7, 7, 2}).pixels({1}, false);
  expect_refused(none, std::nullopt,
                 "no token occurs 2 times, which is how many rows its images give");
}

TEST(PromptImages, ThatDoNotFitAreRefused) {
  const auto with = [](std::vector<int64_t> ids) { return MemorySource().ids(std::move(ids)); };
  expect_refused(with({9, 1}).pixels({1}, false), 9,
                 "1 placeholders (token 9), but its images give 2 rows");
  expect_refused(with({9, 9, 9}).pixels({1}, false), 9,
                 "3 placeholders (token 9), but its images give 2 rows");
  expect_refused(with({9, 9, 9}).features(2, 4), 9,
                 "3 placeholders (token 9), but its images give 2 rows");
  expect_refused(with({1, 2}).features(2, 4), 9, "0 placeholders (token 9)");
  expect_refused(with({9, 9}).features(2, 5), 9, "the text decoder takes rows of 4");
  expect_refused(with({1, 2}).features(0, 4), 9, "its images give no rows");
  expect_refused(with({1, 2}).pixels({0}, true), 9, "its images give no rows");
  expect_refused(with({9, 9}).pixels({1}, false).features(4, 4), 9,
                 "pixel_values give 2 rows, image_features are 4");
  const std::vector<float> values(24);
  for (const Shape& shape :
       {Shape{2, 3, 4, 1}, Shape{2, 1, 2, 6}, Shape{2, 1, 3, 2, 2}, Shape{24}, Shape{8, 3}}) {
    expect_refused(with({9, 9}).add("pixel_values", DType::kF32, shape, values), 9,
                   "the vision encoder takes tiles of");
  }
}

// Lists of up to 8 patches of 12 values; squares of two by two become rows of four.
Result<PromptImages> listed(std::vector<int64_t> positions) {
  packer::Manifest manifest = model(9);
  packer::ManifestMethod& forward = manifest.components[0].programs[0].methods[0];
  forward.inputs[0].shape = {1, 8, 12};
  forward.outputs[0].shape = {1, 2, 4};
  MemorySource source;
  source.ids({1, 9, 2});
  source.add("pixel_values", DType::kF32, {1, 8, 12}, std::vector<float>(96));
  source.add("image_position_ids", DType::kI64, {1, 8, 2}, std::move(positions));
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), manifest);
}

// The column and the row of each patch.
TEST(PromptImages, ListsOfPatchesHaveTheirPositions) {
  const std::vector<int64_t> square = {0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
  const auto made = listed(square);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->shapes, (std::vector<ImageShape>{{2, 2}}));
  EXPECT_EQ(made->row_count(), 1);
}

TEST(PromptImages, ListsOfPatchesInAnotherOrderAreRefused) {
  const std::vector<int64_t> square = {0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1};
  const auto refuse = [&](size_t at, int64_t value) {
    std::vector<int64_t> changed = square;
    changed[at] = value;
    const auto made = listed(changed);
    ASSERT_FALSE(made) << at;
    EXPECT_EQ(made.error().code, ErrorCode::kBadInput);
    EXPECT_NE(made.error().message.find("do not stand row by row"), std::string::npos)
        << made.error().message;
  };
  refuse(0, 1);
  refuse(2, -1);
  refuse(5, 0);
  refuse(8, 0);
  refuse(15, 1);
  refuse(3, INT64_MAX);
  refuse(3, INT64_MIN);
  EXPECT_FALSE(listed(std::vector<int64_t>(16, -1)));
}

// Patches of 2 x 2 pixels and one frame; blocks of two by two become rows of four.
packer::Manifest any_shape_model() {
  packer::Manifest manifest = model(9);
  manifest.image_grid = {2, 1, 2, 0, 0};
  packer::ManifestMethod& forward = manifest.components[0].programs[0].methods[0];
  forward.inputs[0].shape = {1, 6, 48};
  forward.outputs[0].shape = {1, 6, 4};
  packer::ManifestMethod decode;
  decode.name = kForwardMethod;
  decode.inputs = {{std::string(kRopePositionsPort), DType::kI64, {3, 1}}};
  packer::ManifestProgram decoder;
  decoder.methods = {decode};
  manifest.components.push_back({std::string(kTextDecoderRole), {decoder}});
  return manifest;
}

Result<PromptImages> any_shape(std::vector<int64_t> ids, std::vector<int64_t> grids,
                               int64_t patches) {
  MemorySource source;
  const auto count = static_cast<int64_t>(grids.size() / 3);
  source.ids(std::move(ids));
  source.add("image_grid_thw", DType::kI64, {count, 3}, std::move(grids));
  source.add("pixel_values", DType::kF32, {patches, 12},
             std::vector<float>(static_cast<size_t>(patches * 12)));
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), any_shape_model());
}

TEST(PromptImages, ImagesOfAnyShapeHaveTheirBlocks) {
  const auto made = any_shape({1, 9, 9, 5, 9, 2}, {1, 2, 4, 1, 2, 2}, 12);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->shapes, (std::vector<ImageShape>{{2, 4}, {2, 2}}));
  ASSERT_EQ(made->runs.size(), 2u);
  EXPECT_EQ(made->runs[0].grid_rows, 1);
  EXPECT_EQ(made->runs[0].grid_columns, 2);
  EXPECT_EQ(made->runs[1].first, 4);
  EXPECT_EQ(made->row_count(), 3);
}

TEST(PromptImages, ImagesOfAnyShapeThatDoNotFitAreRefused) {
  const auto refused = [](const Result<PromptImages>& made, ErrorCode code,
                          const std::string& message) {
    ASSERT_FALSE(made) << message;
    EXPECT_EQ(made.error().code, code);
    EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  };
  const ErrorCode bad = ErrorCode::kBadInput;
  refused(any_shape({9}, {2, 2, 2}, 4), ErrorCode::kUnsupported, "an image of 2 frames");
  refused(any_shape({9}, {1, 3, 2}, 6), bad, "not of whole blocks of 2 x 2");
  refused(any_shape({9}, {1, 2, 14}, 28), bad, "takes 24 patches at most");
  refused(any_shape({9}, {1, 2, 2}, 8), bad, "pixel_values are [8, 12]");
  refused(any_shape({9, 9, 1}, {1, 2, 2}, 4), bad, "2 placeholders");
  refused(any_shape({9, 1, 9}, {1, 2, 4}, 8), bad, "2 runs of placeholders for 1 images");
  refused(any_shape({9, 1, 9, 9}, {1, 2, 4, 1, 2, 2}, 12), bad,
          "1 placeholders for an image of 1 x 2 blocks");
}

// Placeholders of videos are 8. A second has 2 places in time.
Result<PromptImages> videos(std::vector<int64_t> ids, std::vector<int64_t> grids, int64_t patches,
                            std::vector<float> seconds = {},
                            std::vector<int64_t> image_grids = {}) {
  MemorySource source;
  const auto count = static_cast<int64_t>(grids.size() / 3);
  source.ids(std::move(ids));
  source.add("video_grid_thw", DType::kI64, {count, 3}, std::move(grids));
  const auto size = static_cast<size_t>(std::max<int64_t>(patches, 0) * 12);
  source.add("pixel_values_videos", DType::kF32, {patches, 12}, std::vector<float>(size));
  if (!seconds.empty()) {
    const auto stated = std::ssize(seconds);
    source.add("second_per_grid_ts", DType::kF32, {stated}, std::move(seconds));
  }
  if (!image_grids.empty()) {
    source.add("pixel_values", DType::kF32, {4, 12}, std::vector<float>(48));
    source.add("image_grid_thw", DType::kI64, {1, 3}, std::move(image_grids));
  }
  packer::Manifest manifest = any_shape_model();
  manifest.video_token_id = 8;
  manifest.tokens_per_second = 2;
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), manifest);
}

TEST(PromptImages, VideosHaveTheirGroupsOfFrames) {
  const auto made = videos({1, 8, 8, 8, 8, 5, 8, 2}, {2, 2, 4, 1, 2, 2}, 20, {0.5F, 3});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->shapes, (std::vector<ImageShape>{{2, 4}, {2, 4}, {2, 2}}));
  EXPECT_EQ(made->video_groups, (std::vector<int64_t>{2, 1}));
  ASSERT_EQ(made->runs.size(), 2u);
  EXPECT_EQ(made->runs[0].grid_frames, 2);
  EXPECT_EQ(made->runs[0].grid_columns, 2);
  EXPECT_EQ(made->runs[0].frame_step, 1);
  EXPECT_EQ(made->runs[1].frame_step, 6);
  const auto apart = videos({1, 8, 8, 5, 8, 8, 2}, {2, 2, 4}, 16);
  ASSERT_TRUE(apart) << apart.error().message;
  ASSERT_EQ(apart->runs.size(), 2u);
  EXPECT_EQ(apart->runs[1].grid_frames, 1);
}

TEST(PromptImages, VideosThatDoNotFitAreRefused) {
  const auto refused = [](const Result<PromptImages>& made, ErrorCode code,
                          const std::string& message) {
    ASSERT_FALSE(made) << message;
    EXPECT_EQ(made.error().code, code);
    EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  };
  const ErrorCode bad = ErrorCode::kBadInput, unsupported = ErrorCode::kUnsupported;
  refused(videos({8}, {0, 2, 2}, 4), unsupported, "an image of 0 frames");
  refused(videos({8}, {int64_t{1} << 40, 2, 2}, 4), unsupported, "frames: not supported");
  refused(videos({8, 8}, {2, 2, 2}, 4), bad, "pixel_values_videos are [4, 12]");
  refused(videos({8, 8, 8}, {2, 2, 2}, 8), bad, "3 placeholders (token 8), but its videos");
  refused(videos({8, 8, 1, 8}, {3, 2, 2}, 12), bad, "2 runs of placeholders for 1 videos of 3");
  refused(videos({8, 1, 8, 8}, {2, 2, 2, 1, 2, 2}, 12), bad,
          "1 placeholders for a video of 2 x 1 x 1 blocks");
  refused(videos({8}, {1, 2, 2}, 4, {-1}), bad, "groups of frames are -2 places apart in time");
  refused(videos({8}, {1, 2, 2}, 4, {NAN}), bad, "a value is not finite");
  refused(videos({8, 5, 9}, {1, 2, 2}, 4, {1}, {1, 2, 4}), bad, "pixel_values are [4, 12]");
  refused(videos({8, 9, 5, 9}, {1, 2, 2}, 4, {1}, {1, 2, 2}), bad, "3 placeholders");
}

TEST(PromptImages, ImagesStandBesideVideos) {
  const auto made = videos({8, 8, 5, 9}, {2, 2, 2}, 8, {0.5F}, {1, 2, 2});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->shapes, (std::vector<ImageShape>{{2, 2}, {2, 2}, {2, 2}}));
  EXPECT_EQ(made->stills, 1u);
  EXPECT_EQ(made->pixel_shape, (Shape{12, 12}));
  ASSERT_EQ(made->runs.size(), 2u);
  EXPECT_EQ(made->runs[0].first, 3);
  EXPECT_EQ(made->runs[0].grid_frames, 1);
  EXPECT_EQ(made->runs[1].first, 0);
  EXPECT_EQ(made->runs[1].grid_frames, 2);
  // Rows are in the order of their places, features in that of the encoder.
  PromptImages given = *made;
  given.features.assign(12, 0);
  std::fill_n(given.features.begin(), 4, 1.0F);
  const auto rows = given.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].first, 0);
  EXPECT_EQ(rows[0].values.front(), 0);
  EXPECT_EQ(rows[1].values.front(), 1);
}

// Frames are lists of up to 8 patches; those of the reference have 4.
Result<PromptImages> listed_videos(std::vector<int64_t> frames, std::vector<int64_t> types) {
  packer::Manifest manifest = model(9);
  manifest.video_token_id = 8;
  packer::ManifestMethod& forward = manifest.components[0].programs[0].methods[0];
  forward.inputs[0].shape = {1, 8, 12};
  forward.outputs[0].shape = {1, 2, 4};
  MemorySource source;
  source.ids({1, 8, 2, 8});
  source.add("pixel_values_videos", DType::kF32, {2, 4, 12}, std::vector<float>(96, 1.0F));
  source.add("video_position_ids", DType::kI64, {2, 4, 2},
             std::vector<int64_t>{0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1});
  const auto count = std::ssize(frames);
  source.add("num_frames_per_video", DType::kI64, {count}, std::move(frames));
  source.add("mm_token_type_ids", DType::kI64, {1, 4}, std::move(types));
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), manifest);
}

TEST(PromptImages, FramesAreListsOfPatches) {
  const auto made = listed_videos({1, 1}, {0, 2, 0, 2});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->pixel_shape, (Shape{2, 8, 12}));
  EXPECT_EQ(made->list_lengths, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(std::ranges::count(made->pixels, 1.0F), 96);
  EXPECT_EQ(made->video_groups, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(made->row_count(), 2);
  for (const std::vector<int64_t>& frames :
       {std::vector<int64_t>{1}, {3}, {2, 0}, {3, -1}, {1, 1, 1}, {INT64_MAX, INT64_MAX}}) {
    const auto wrong = listed_videos(frames, {0, 2, 0, 2});
    ASSERT_FALSE(wrong);
    EXPECT_NE(wrong.error().message.find("does not divide 2 frames into videos"), std::string::npos)
        << wrong.error().message;
  }
  const auto types = listed_videos({2}, {0, 1, 0, 2});
  ASSERT_FALSE(types);
  EXPECT_NE(types.error().message.find("1 for token 8, expected 2"), std::string::npos);
}

// A picture of 4 x 2 patches beside a frame of 2 x 2; programs take lists of 8.
TEST(PromptImages, ListsOfPicturesStandBesideThoseOfFrames) {
  packer::Manifest manifest = model(9);
  manifest.video_token_id = 8;
  packer::ManifestMethod& forward = manifest.components[0].programs[0].methods[0];
  forward.inputs[0].shape = {1, 8, 12};
  forward.outputs[0].shape = {1, 2, 4};
  const auto with_sides = [&](std::vector<int64_t> sides) {
    MemorySource source;
    source.ids({8, 1, 9, 9});
    source.add("pixel_values", DType::kF32, {1, 8, 12}, std::vector<float>(96, 2.0F));
    source.add("pixel_values_videos", DType::kF32, {1, 4, 12}, std::vector<float>(48, 1.0F));
    const auto count = static_cast<int64_t>(sides.size() / 2);
    source.add("spatial_shapes", DType::kI64, {count, 2}, std::move(sides));
    source.add("num_frames_per_video", DType::kI64, {1}, std::vector<int64_t>{1});
    const Reference reference = Reference::open(source).value();
    return images_of(reference, reference.prompts().front(), manifest);
  };
  const auto made = with_sides({4, 2, 2, 2});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->pixel_shape, (Shape{2, 8, 12}));
  EXPECT_EQ(made->stills, 1u);
  EXPECT_EQ(made->still_tiles(), 1);
  EXPECT_EQ(made->list_lengths, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(made->shapes, (std::vector<ImageShape>{{4, 2}, {2, 2}}));
  EXPECT_EQ(std::ranges::count(made->pixels, 2.0F), 96);
  ASSERT_EQ(made->runs.size(), 2u);
  EXPECT_EQ(made->runs[0].first, 2);
  EXPECT_EQ(made->runs[1].first, 0);
  std::vector<float> states(2 * 8 * 3, 0.0F);
  const Shape joined = join_tower(*made, "vision_hidden_states.0", {1, 8, 3}, states);
  EXPECT_EQ(joined, (Shape{1, 12, 3}));
  EXPECT_EQ(states.size(), 36u);
  EXPECT_FALSE(with_sides({4, 2}));
}

// Tiles of 2 x 2 pixels have one feature and a newline. A picture has two tiles or four beside it.
packer::Manifest tiled_model() {
  packer::Manifest manifest = model(9);
  manifest.image_tiles = {{2, 4, 4, 4}, 0};
  return manifest;
}

Result<PromptImages> tiled(std::vector<int64_t> ids, std::vector<int64_t> sizes, Shape shape) {
  MemorySource source;
  const auto count = static_cast<int64_t>(sizes.size() / 2);
  source.ids(std::move(ids));
  if (count > 0) source.add("image_sizes", DType::kI64, {count, 2}, std::move(sizes));
  std::vector<float> values;
  for (int64_t tile = 0; tile < shape[0] * (shape.size() == 5 ? shape[1] : 1); ++tile) {
    values.insert(values.end(), 12, static_cast<float>(tile));
  }
  source.add("pixel_values", DType::kF32, std::move(shape), std::move(values));
  const Reference reference = Reference::open(source).value();
  return images_of(reference, reference.prompts().front(), tiled_model());
}

// The first picture has 1 + 1 x (2 + 1) rows, the second one 1 + 2 x (2 + 1).
TEST(PromptImages, PicturesOfSeveralTilesHaveTheirRows) {
  const std::vector<int64_t> ids = {1, 9, 9, 9, 9, 5, 9, 9, 9, 9, 9, 9, 9, 2};
  const auto padded = tiled(ids, {2, 4, 4, 4}, {2, 5, 3, 2, 2});
  ASSERT_TRUE(padded) << padded.error().message;
  EXPECT_EQ(padded->tile_counts, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(padded->pixel_shape, (Shape{8, 3, 2, 2}));
  EXPECT_EQ(padded->pixels[2 * 12], 2.0F);
  EXPECT_EQ(padded->pixels[3 * 12], 5.0F) << "tiles of padding are left out";
  EXPECT_EQ(padded->row_count(), 11);
  EXPECT_TRUE(padded->joins_features());
  const auto whole = tiled(ids, {2, 4, 4, 4}, {8, 3, 2, 2});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->tile_counts, padded->tile_counts);
}

TEST(PromptImages, PicturesOfOneTileHaveItsNewline) {
  const auto made = tiled({1, 9, 9, 9, 9, 2}, {2, 4, 4, 4}, {2, 1, 3, 2, 2});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->tile_counts, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(made->row_count(), 4);
}

TEST(PromptImages, PicturesOfSeveralTilesThatDoNotFitAreRefused) {
  const auto refused = [](const Result<PromptImages>& made, const std::string& message) {
    ASSERT_FALSE(made) << message;
    EXPECT_EQ(made.error().code, ErrorCode::kBadInput);
    EXPECT_NE(made.error().message.find(message), std::string::npos) << made.error().message;
  };
  const std::vector<int64_t> ids = {1, 9, 9, 9, 9, 2};
  refused(tiled(ids, {}, {3, 3, 2, 2}), "has pixel_values and no image_sizes");
  refused(tiled(ids, {0, 4}, {3, 3, 2, 2}), "a side that is not from 1 to 1048576 pixels");
  refused(tiled(ids, {INT64_MIN, 4}, {1, 3, 3, 2, 2}), "a side that is not from 1");
  refused(tiled(ids, {2, 4}, {5, 3, 2, 2}), "5 tiles of 1 pictures, which by their sizes have 3");
  refused(tiled(ids, {4, 4}, {1, 3, 3, 2, 2}), "not the tiles of 1 pictures");
  refused(tiled(ids, {2, 4}, {2, 3, 3, 2, 2}), "not the tiles of 1 pictures");
  refused(tiled(ids, {2, 4}, {3, 3, 4, 4}), "the vision encoder takes tiles of [1, 3, 2, 2]");
  refused(tiled({1, 9, 9, 9, 2}, {2, 4}, {3, 3, 2, 2}), "3 placeholders");
}

}  // namespace
}  // namespace ferry::proof::prompt_images_test
