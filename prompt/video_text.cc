#include "prompt/video_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/text.h"
#include "prompt/expand.h"

namespace ferry::prompt {
namespace {

constexpr std::array<std::string_view, 20> kSmall = {
    "zero",     "one",     "two",     "three",     "four",     "five",    "six",
    "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",  "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr std::array<std::string_view, 10> kTens = {
    "", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"};

std::string words_below_100(int64_t number) {
  if (number < 20) return std::string(kSmall[static_cast<size_t>(number)]);
  const std::string tens(kTens[static_cast<size_t>(number / 10)]);
  return number % 10 == 0 ? tens
                          : tens + "-" + std::string(kSmall[static_cast<size_t>(number % 10)]);
}

std::string words_below_1000(int64_t number) {
  if (number < 100) return words_below_100(number);
  const std::string hundreds = words_below_100(number / 100) + " hundred";
  return number % 100 == 0 ? hundreds : hundreds + " and " + words_below_100(number % 100);
}

std::string run_of(const ImageProcessor& p, std::string_view token, int64_t count) {
  std::string out = p.open;
  for (int64_t i = 0; i < count; ++i) out += token;
  return out + p.close;
}

std::string run_text(const ImageProcessor& p, const VideoLayout& video) {
  std::string out;
  const int64_t count = video.tokens_of_run(p);
  for (int64_t i = 0; i < count; ++i) out += p.video;
  return out;
}

std::string timed_text(const ImageProcessor& p, const VideoLayout& video) {
  std::string out;
  for (const double seconds : video.seconds) {
    out += fmt::format("<{:.1f} seconds>", seconds) + run_of(p, p.video, video.tokens_of(p));
  }
  return out;
}

// Returns the minute and the second, of two digits or more.
std::string clock_time(double seconds) {
  const auto second = static_cast<int64_t>(seconds);
  return fmt::format("{:02}:{:02}", second / 60, second % 60);
}

std::string clock_text(const ImageProcessor& p, const VideoLayout& video) {
  std::string out;
  for (const double seconds : video.seconds) {
    out += (out.empty() ? "" : " ") + clock_time(seconds) + " ";
    out += run_of(p, p.video, video.tokens_of(p));
  }
  return out;
}

std::string numbered_text(const ImageProcessor& p, const VideoLayout& video) {
  std::string out;
  for (int64_t i = 0; i < video.groups; ++i) {
    out += fmt::format("{}Frame{}: ", i == 0 ? "" : "\n", i + 1);
    out += run_of(p, p.image, video.tokens_of(p));
  }
  return out;
}

// `counted` is the number of frames that the text states.
std::string story_text(const ImageProcessor& p, const VideoLayout& video, int64_t counted) {
  const auto whole = static_cast<int64_t>(video.duration);
  const int64_t day = whole % 86'400, days = whole / 86'400;
  std::string length = fmt::format("{}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60);
  if (days > 0) length = fmt::format("{} day{}, {}", days, days == 1 ? "" : "s", length);
  std::string out =
      fmt::format("You are provided the following series of {} frames from a {} [H:MM:SS] video.\n",
                  number_words(counted), length);
  for (const double seconds : video.seconds) {
    out += fmt::format("\nFrame from {}:{}{}", clock_time(seconds), p.open, p.global);
    for (int64_t i = 0; i < video.tokens_of(p); ++i) out += p.image;
    out += p.close;
  }
  return out + "\n\n";
}

std::string video_text(const ImageProcessor& p, const VideoLayout& video, int64_t counted) {
  switch (p.video_text) {
    case VideoText::kTimed:
      return timed_text(p, video);
    case VideoText::kNumbered:
      return numbered_text(p, video);
    case VideoText::kStory:
      return story_text(p, video, counted);
    case VideoText::kClock:
      return clock_text(p, video);
    default:
      return run_text(p, video);
  }
}

// Returns the frames of the longest video, to which the reference fills up the others.
Result<int64_t> check_videos(const ImageProcessor& p, std::span<const VideoLayout> videos,
                             const std::string& where) {
  int64_t tokens = 0, most = 0;
  for (const VideoLayout& video : videos) {
    const int64_t each = video.tokens_of(p);
    if (p.ends_videos() && video.groups != videos.front().groups) {
      return bad_input(
          fmt::format("{}: videos of {} and {} frames in one prompt: the reference fails", where,
                      videos.front().groups, video.groups));
    }
    if (each < 1 || video.groups < 1 || std::ssize(video.seconds) != video.groups) {
      return fail(ErrorCode::kInternal, where + ": a video without tokens");
    }
    tokens += video.groups > kMaxImageTokens / each ? kMaxImageTokens + 1 : each * video.groups;
    most = std::max(most, video.groups);
    if (tokens <= kMaxImageTokens) continue;
    return bad_input(
        fmt::format("{}: videos of more than {} tokens together", where, kMaxImageTokens));
  }
  return most;
}

}  // namespace

std::string number_words(int64_t number) {
  if (number < 1000) return words_below_1000(number);
  const std::string thousands = words_below_1000(number / 1000) + " thousand";
  const int64_t rest = number % 1000;
  if (rest == 0) return thousands;
  return thousands + (rest < 100 ? " and " : ", ") + words_below_1000(rest);
}

Result<std::string> expand_videos(const ImageProcessor& p, std::string_view prompt,
                                  std::span<const VideoLayout> videos, const std::string& where) {
  if (p.video_text == VideoText::kNone && !videos.empty()) {
    return fail(ErrorCode::kUnsupported,
                where + ": videos are not supported with the processor of this model");
  }
  if (p.video.empty()) return std::string(prompt);
  const size_t placeholders = count_parts(prompt, p.video);
  if (p.video_text == VideoText::kNone && placeholders > 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the prompt has the placeholder {}; videos are not supported with "
                            "the processor of this model",
                            where, quoted(p.video)));
  }
  if (placeholders != videos.size()) {
    return bad_input(fmt::format("{}: {} placeholder{} {} in the prompt for {} video{}", where,
                                 placeholders, placeholders == 1 ? "" : "s", quoted(p.video),
                                 videos.size(), videos.size() == 1 ? "" : "s"));
  }
  const int64_t counted = FERRY_TRY(check_videos(p, videos, where));
  std::string out;
  for (const VideoLayout& video : videos) {
    const size_t at = prompt.find(p.video);
    out += prompt.substr(0, at);
    out += video_text(p, video, counted);
    prompt.remove_prefix(at + p.video.size());
  }
  return out += prompt;
}

}  // namespace ferry::prompt
