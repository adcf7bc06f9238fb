#include "prompt/speech_rules.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ferry::prompt::speech_rules_test {
namespace {

// Tokens 0 to 3 are text, 4 is the end, 5 the mark, 6 to 10 are timestamps.
constexpr int64_t kVocab = 11, kTimes = 6;

SpeechSettings small_settings() {
  SpeechSettings settings;
  settings.end = 4;
  settings.no_timestamps = 5;
  return settings;
}

std::vector<int64_t> allowed(const SpeechSettings& settings, const std::vector<int64_t>& tokens,
                             bool timestamps, float text = 20.0F) {
  std::vector<float> logits(kVocab, 0.0F);
  logits[0] = logits[4] = text;  // likelier than all timestamps together
  apply_speech_rules(settings, tokens, timestamps, logits);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kVocab; ++i) {
    if (!std::isinf(logits[static_cast<size_t>(i)])) ids.push_back(i);
  }
  return ids;
}

using Ids = std::vector<int64_t>;

TEST(SpeechRules, TokensAreSuppressedAndAtTheBeginningToo) {
  SpeechSettings settings = small_settings();
  settings.suppressed = {1};
  settings.suppressed_first = {2, 4};
  EXPECT_EQ(allowed(settings, {}, false), (Ids{0, 3, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(allowed(settings, {0}, false), (Ids{0, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(SpeechRules, TheFirstTokenIsAnEarlyTimestamp) {
  SpeechSettings settings = small_settings();
  EXPECT_EQ(allowed(settings, {}, true), (Ids{6, 7, 8, 9, 10}));
  settings.latest_start = 1;
  EXPECT_EQ(allowed(settings, {}, true), (Ids{6, 7}));
}

TEST(SpeechRules, TimestampsComeInPairsAndDoNotDecrease) {
  const SpeechSettings settings = small_settings();
  EXPECT_EQ(allowed(settings, {7}, true), (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(allowed(settings, {7, 0}, true), (Ids{0, 1, 2, 3, 4, 8, 9, 10}));
  EXPECT_EQ(allowed(settings, {7, 0, 8}, true), (Ids{4, 8, 9, 10}));
  EXPECT_EQ(allowed(settings, {7, 0, 8, 8}, true), (Ids{0, 1, 2, 3, 4}));
}

TEST(SpeechRules, LikelyTimestampsForbidText) {
  EXPECT_EQ(allowed(small_settings(), {7, 0}, true, 0.5F), (Ids{8, 9, 10}));
}

std::vector<std::pair<double, double>> times_of(const WindowSegments& window) {
  std::vector<std::pair<double, double>> times;
  for (const SpeechSegment& segment : window.segments)
    times.push_back({segment.start, segment.end});
  return times;
}
using Times = std::vector<std::pair<double, double>>;

TEST(CutWindow, WithoutPairsTheWindowIsOneSegment) {
  const WindowSegments plain = cut_window(Ids{0, 1}, 100, 60, kTimes);
  EXPECT_EQ(times_of(plain), (Times{{1.0, 1.0 + 30 * 0.02}}));
  EXPECT_EQ(plain.advance, 60);
  const WindowSegments timed = cut_window(Ids{6, 0, 9}, 0, 60, kTimes);
  EXPECT_EQ(times_of(timed), (Times{{0.0, 3 * 0.02}}));
  // A last timestamp of 0.00 says nothing.
  EXPECT_EQ(times_of(cut_window(Ids{6, 0}, 0, 60, kTimes)), (Times{{0.0, 30 * 0.02}}));
}

TEST(CutWindow, ASingleTimestampAtTheEndEndsTheWindow) {
  const WindowSegments window = cut_window(Ids{6, 0, 7, 7, 1, 9}, 0, 60, kTimes);
  EXPECT_EQ(times_of(window), (Times{{0.0, 0.02}, {0.02, 3 * 0.02}}));
  EXPECT_EQ(window.segments[0].tokens, (Ids{6, 0, 7}));
  EXPECT_EQ(window.segments[1].tokens, (Ids{7, 1, 9}));
  EXPECT_EQ(window.advance, 60);
}

TEST(CutWindow, BehindTheLastPairTheNextWindowBegins) {
  const WindowSegments window = cut_window(Ids{6, 0, 8, 8, 1}, 0, 60, kTimes);
  EXPECT_EQ(times_of(window), (Times{{0.0, 2 * 0.02}}));
  EXPECT_EQ(window.segments[0].tokens, (Ids{6, 0, 8, 8}));
  EXPECT_EQ(window.advance, 4);
}

}  // namespace
}  // namespace ferry::prompt::speech_rules_test
