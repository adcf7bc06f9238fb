#include "prompt/video_text.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace ferry::prompt::video_text_test {
namespace {

ImageProcessor processor(VideoText text) {
  ImageProcessor p;
  p.grammar = text == VideoText::kStory ? ImageGrammar::kIdefics3 : ImageGrammar::kQwenVl;
  p.tokens_per_tile = 2;
  p.image = p.mark = "I";
  p.video = "V";
  p.open = "<";
  p.close = ">";
  p.global = "g";
  p.video_text = text;
  return p;
}

std::string expanded(VideoText text, const std::vector<VideoLayout>& videos) {
  const auto made = expand_videos(processor(text), "aVb", videos, "p");
  return made ? *made : made.error().message;
}

TEST(VideoTexts, AreThoseOfTheProcessors) {
  const VideoLayout video = {.groups = 2, .tokens = 3, .seconds = {0.25, 61.96}, .duration = 3723};
  EXPECT_EQ(expanded(VideoText::kRun, {video}), "aVVVVVVb");
  EXPECT_EQ(expanded(VideoText::kSpaced, {video}), "aVVVVVVb");
  EXPECT_EQ(expanded(VideoText::kTimed, {video}), "a<0.2 seconds><VVV><62.0 seconds><VVV>b");
  EXPECT_EQ(expanded(VideoText::kClock, {video}), "a00:00 <VVV> 01:01 <VVV>b");
  EXPECT_EQ(expanded(VideoText::kPooled, {video}), "aVVVVVVVb");
  VideoLayout tiles = video;
  tiles.tokens = 0;
  EXPECT_EQ(expanded(VideoText::kNumbered, {tiles}), "aFrame1: <II>\nFrame2: <II>b");
  EXPECT_EQ(expanded(VideoText::kStory, {tiles}),
            "aYou are provided the following series of two frames from a 1:02:03 [H:MM:SS] "
            "video.\n\nFrame from 00:00:<gII>\nFrame from 01:01:<gII>\n\nb");
  tiles.duration = 2 * 86'400;
  EXPECT_NE(expanded(VideoText::kStory, {tiles}).find("from a 2 days, 0:00:00 ["),
            std::string::npos);
}

// Words are those of num2words 0.5.14.
TEST(VideoTexts, NumbersHaveTheWordsOfTheReference) {
  const std::pair<int64_t, const char*> words[] = {
      {0, "zero"},
      {13, "thirteen"},
      {40, "forty"},
      {64, "sixty-four"},
      {100, "one hundred"},
      {101, "one hundred and one"},
      {999, "nine hundred and ninety-nine"},
      {1000, "one thousand"},
      {1001, "one thousand and one"},
      {2100, "two thousand, one hundred"},
      {12345, "twelve thousand, three hundred and forty-five"}};
  for (const auto& [number, text] : words) EXPECT_EQ(number_words(number), text);
}

TEST(VideoTexts, OtherNumbersOfVideosAreRefused) {
  const VideoLayout video = {.groups = 1, .tokens = 1, .seconds = {0}, .duration = 1};
  EXPECT_EQ(expanded(VideoText::kRun, {}), "p: 1 placeholder 'V' in the prompt for 0 videos");
  EXPECT_EQ(expanded(VideoText::kRun, {video, video}),
            "p: 1 placeholder 'V' in the prompt for 2 videos");
  EXPECT_EQ(expanded(VideoText::kNone, {}),
            "p: the prompt has the placeholder 'V'; videos are not supported with the processor of "
            "this model");
  EXPECT_EQ(expanded(VideoText::kNone, {video}),
            "p: videos are not supported with the processor of this model");
  VideoLayout large = video;
  large.tokens = int64_t{1} << 40;
  EXPECT_EQ(expanded(VideoText::kRun, {large}), "p: videos of more than 1048576 tokens together");
}

}  // namespace
}  // namespace ferry::prompt::video_text_test
