#include "runner/rope_places.h"

#include <gtest/gtest.h>

#include "tests/cli/checkpoints.h"

namespace ferry::runner::rope_places_test {
namespace {

using Json = nlohmann::json;
using Places = std::array<int64_t, 3>;

// The images of a sequence whose placeholders have type 1.
std::vector<EmbeddingRows> images_of(const Json& one) {
  std::vector<EmbeddingRows> rows;
  const std::vector<int64_t> types = one["types"];
  for (size_t at = 0; at < types.size(); ++at) {
    if (types[at] != 1 || (at > 0 && types[at - 1] == 1)) continue;
    const Json& blocks = one["blocks"][rows.size()];
    rows.push_back({static_cast<int64_t>(at), {}, blocks[0], blocks[1]});
  }
  return rows;
}

// What get_rope_index() of transformers gives (tests/conformance/make_vision_golden.py grids).
TEST(RopePlaces, AreThoseOfTheReference) {
  const Json golden = Json::parse(read_bytes(fixture("vision/grids.json")));
  ASSERT_GE(golden["sequences"].size(), 3u);
  for (const Json& one : golden["sequences"]) {
    const std::vector<EmbeddingRows> images = images_of(one);
    ASSERT_EQ(images.size(), one["blocks"].size());
    RopePlaces places;
    places.set(images, 0);
    const auto count = static_cast<size_t>(one["types"].size());
    std::vector<int64_t> made(3 * count);
    places.write(0, count, made.data());
    for (size_t axis = 0; axis < 3; ++axis) {
      const auto first = made.begin() + static_cast<std::ptrdiff_t>(axis * count);
      EXPECT_EQ(std::vector<int64_t>(first, first + static_cast<std::ptrdiff_t>(count)),
                one["positions"][axis].get<std::vector<int64_t>>());
    }
  }
}

// Groups of frames are a step apart in time, rounded down; the text behind them goes on behind the
// larger side, and the answer behind the latest place.
TEST(RopePlaces, FramesOfAVideoAreApartInTime) {
  EmbeddingRows video = {2, {}, 2, 3};
  video.grid_frames = 3;
  video.frame_step = 2.6F;
  video.prompt_tokens = 22;
  RopePlaces places;
  places.set({&video, 1}, 0);
  EXPECT_EQ(places.at(2), (Places{2, 2, 2}));
  EXPECT_EQ(places.at(8), (Places{4, 2, 2}));
  EXPECT_EQ(places.at(19), (Places{7, 3, 4}));
  EXPECT_EQ(places.at(20), (Places{5, 5, 5}));
  EXPECT_EQ(places.at(21), (Places{6, 6, 6}));
  EXPECT_EQ(places.at(22), (Places{8, 8, 8}));
  EXPECT_EQ(places.at(23), (Places{9, 9, 9}));
}

TEST(RopePlaces, ImagesOfTheSequenceStayWhenTheirRowsAreTakenAway) {
  const EmbeddingRows first = {2, {}, 2, 3}, second = {10, {}, 1, 2};
  RopePlaces places;
  places.set({&first, 1}, 0);
  EXPECT_EQ(places.at(8), (Places{5, 5, 5}));
  places.set({}, 8);  // after the image has been run
  EXPECT_EQ(places.at(8), (Places{5, 5, 5}));
  places.set({&second, 1}, 9);  // a later turn gives its own image alone
  EXPECT_EQ(places.at(10), (Places{7, 7, 7}));
  EXPECT_EQ(places.at(11), (Places{7, 7, 8}));
  EXPECT_EQ(places.at(12), (Places{9, 9, 9}));
  const EmbeddingRows both[] = {first, second};
  places.set(both, 9);  // or all images again
  EXPECT_EQ(places.at(12), (Places{9, 9, 9}));
}

TEST(RopePlaces, ANewSequenceForgetsThoseBefore) {
  const EmbeddingRows first = {2, {}, 2, 3}, other = {1, {}, 1, 1};
  RopePlaces places;
  places.set({&first, 1}, 0);
  places.set({}, 20);
  places.set({&other, 1}, 20);
  places.restart();
  EXPECT_EQ(places.at(8), (Places{8, 8, 8}));
  EXPECT_EQ(places.at(1), (Places{1, 1, 1}));
  places.set({}, 0);
  EXPECT_EQ(places.at(30), (Places{30, 30, 30}));
}

}  // namespace
}  // namespace ferry::runner::rope_places_test
