// Which frames of a video are taken, and how large they become.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "media/pixel_values.h"
#include "media/video_settings.h"

namespace ferry::media {
namespace {

// Returns numpy.linspace(first, last, count), in f64.
std::vector<double> line_space(double first, double last, int64_t count) {
  std::vector<double> out;
  const double delta = last - first;
  const double step = count > 1 ? delta / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<double>(i);
    out.push_back((count > 1 ? at * step : at * delta) + first);
  }
  if (count > 1) out.back() = last;
  return out;
}

// Returns torch.arange(first, end, step).int(): rounded to f32, then down.
Result<std::vector<int64_t>> stepped(double first, int64_t end, double step) {
  const double count = std::ceil((static_cast<double>(end) - first) / step);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    const auto place = static_cast<float>(first + static_cast<double>(i) * step);
    out.push_back(static_cast<int64_t>(place));
    if (out.back() < end) continue;
    return bad_input(fmt::format("the reference takes frame {} of {} frames", out.back(), end));
  }
  // A tensor with one number is a number to the reference, which then has no list of frames.
  if (out.size() == 1)
    return bad_input("the video processor samples one frame: the reference fails");
  return out;
}

std::vector<int64_t> all_frames(int64_t total) {
  std::vector<int64_t> out(static_cast<size_t>(total));
  for (int64_t i = 0; i < total; ++i) out[static_cast<size_t>(i)] = i;
  return out;
}

// Python's round(): halves go to the even number.
double rounded(double value) { return std::nearbyint(value); }

Failure no_count() {
  return bad_input(
      "the video processor samples frames and states neither num_frames nor fps, so that the "
      "reference fails");
}

Failure too_few(double wanted, int64_t total) {
  return bad_input(
      fmt::format("the video processor takes {} frames, the video has {}", wanted, total));
}

Result<std::vector<int64_t>> qwen2_frames(const VideoSettings& s, int64_t total, double rate) {
  const auto group = static_cast<double>(s.frame.frames), all = static_cast<double>(total);
  if (s.count && s.rate) return bad_input("the video processor states num_frames and fps");
  double count = 0;
  if (s.count) {
    count = rounded(static_cast<double>(*s.count) / group) * group;
  } else if (s.rate) {
    const double most =
        std::floor(std::min(static_cast<double>(s.most_frames), all) / group) * group;
    count = all / rate * *s.rate;
    count = std::min({std::max(count, static_cast<double>(s.least_frames)), most, all});
    count = std::floor(count / group) * group;
  } else {
    return no_count();
  }
  if (count > all || count < 1) return too_few(count, total);
  return stepped(0, total, all / count);
}

Result<std::vector<int64_t>> qwen3_frames(const VideoSettings& s, int64_t total, double rate) {
  if (s.count && s.rate) return bad_input("the video processor states num_frames and fps");
  double count = 0;
  if (s.count) {
    count = static_cast<double>(*s.count);
  } else if (s.rate) {
    count = std::floor(static_cast<double>(total) / rate * *s.rate);
    count = std::min({std::max(count, static_cast<double>(s.least_frames)),
                      static_cast<double>(s.most_frames), static_cast<double>(total)});
  } else {
    count = static_cast<double>(std::min(std::max(total, s.least_frames), s.most_frames));
  }
  if (count > static_cast<double>(kMaxTakenFrames)) return too_few(count, total);
  std::vector<int64_t> out;
  for (const double place :
       line_space(0, static_cast<double>(total - 1), static_cast<int64_t>(count))) {
    out.push_back(static_cast<int64_t>(rounded(place)));
  }
  return out;
}

Result<std::vector<int64_t>> smolvlm_frames(const VideoSettings& s, int64_t total, double rate) {
  if (!s.count || !s.rate) return no_count();
  constexpr double kSkipped = 1;  // seconds at both ends of a long video
  const auto all = static_cast<double>(total), most = static_cast<double>(*s.count);
  const double seconds = all / rate;
  const double count = std::max(std::min(rounded(*s.rate * seconds), most), 1.0);
  double first = 0, last = all - 1;
  if (seconds - 2 * kSkipped > most * *s.rate) {
    first = std::floor(kSkipped * rate);
    last = std::min(std::floor(all - kSkipped * rate), all - 1);
  }
  if (first >= last) {
    first = 0;
    last = all - 1;
  }
  std::vector<int64_t> out;
  for (const double place : line_space(first, last, static_cast<int64_t>(count))) {
    out.push_back(static_cast<int64_t>(std::floor(place)));
  }
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<int64_t>> internvl_frames(const VideoSettings& s, int64_t total, double rate) {
  const auto all = static_cast<double>(total);
  if (!s.count && !s.rate) return no_count();
  const double count = s.count ? static_cast<double>(*s.count) : std::floor(all / rate * *s.rate);
  if (count > all || count < 1) return too_few(count, total);
  const double step = all / count;
  return stepped(s.shift.value_or(step / 2), total, step);
}

// Returns those of the function that classes without one of their own have.
Result<std::vector<int64_t>> even_frames(const VideoSettings& s, int64_t total, double rate) {
  if (s.count && s.rate) return bad_input("the video processor states num_frames and fps");
  if (!s.count && !s.rate) return all_frames(total);
  const auto all = static_cast<double>(total);
  const double count =
      s.count ? static_cast<double>(*s.count) : std::max(std::floor(all / rate * *s.rate), 1.0);
  if (count > all) return too_few(count, total);
  const auto parts = static_cast<int64_t>(count);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < parts; ++i) out.push_back(i * total / parts);
  return out;
}

Result<std::vector<int64_t>> sampled(const VideoSettings& s, int64_t total, double rate) {
  switch (s.kind) {
    case VideoKind::kQwen2Vl:
      return qwen2_frames(s, total, rate);
    case VideoKind::kQwen3Vl:
      return qwen3_frames(s, total, rate);
    case VideoKind::kSmolVlm:
      return smolvlm_frames(s, total, rate);
    case VideoKind::kInternVl:
      return internvl_frames(s, total, rate);
    case VideoKind::kGemma4:
    case VideoKind::kLlavaOnevision:
      break;
  }
  return even_frames(s, total, rate);
}

// Returns the size of each frame for Qwen2Vl, which bounds the pixels of a frame, to fewer where
// the video has many frames.
Size qwen2_size(Size frame, int64_t frames, const VideoSettings& s) {
  Settings bounds = s.frame;
  if (s.caps_pixels) {
    const int64_t side = int64_t{s.frame.patch} * s.frame.merge;
    const auto total = static_cast<int64_t>(static_cast<double>(s.max_tokens * side * side) * 0.9);
    const int64_t share = total * s.frame.frames / frames;
    const auto least = static_cast<int64_t>(s.frame.least_pixels * 1.05);
    bounds.most_pixels =
        static_cast<int>(std::max(std::min(int64_t{s.frame.most_pixels}, share), least));
  }
  return qwen2vl_size(frame, bounds);
}

int64_t most_of_all(int64_t frames, const VideoSettings& s) {
  if (!s.caps_pixels) return s.frame.most_pixels;
  const int64_t side = int64_t{s.frame.patch} * s.frame.merge;
  const auto least = static_cast<int64_t>(s.frame.least_pixels * 1.05);
  return std::max(std::min(s.max_tokens * side * side, s.frame.most_pixels / frames), least) *
         frames;
}

// Returns the size of each frame for Qwen3Vl, which bounds the pixels of all frames together, at
// least of one group.
Result<Size> qwen3_size(Size frame, int64_t frames, const VideoSettings& s) {
  const int64_t step = int64_t{s.frame.patch} * s.frame.merge;
  const auto factor = static_cast<double>(step);
  double height = frame.height, width = frame.width;
  if (height < factor || width < factor) {
    const double scale = std::max(factor / height, factor / width);
    height = std::floor(height * scale);
    width = std::floor(width * scale);
  }
  if (std::max(height, width) / std::min(height, width) > 200) {
    return bad_input(
        fmt::format("a side of a frame is more than 200 times as long as the other: "
                    "{} x {}",
                    frame.width, frame.height));
  }
  const auto whole = [&](double parts) { return static_cast<int64_t>(parts) * step; };
  int64_t high = whole(rounded(height / factor)), wide = whole(rounded(width / factor));
  const auto n = static_cast<double>(frames), group = static_cast<double>(s.frame.frames);
  const auto long_time = static_cast<int64_t>(rounded(n / group) * group);
  const int64_t most = most_of_all(frames, s);
  if (long_time * high * wide > most) {
    const double beta = std::sqrt(n * height * width / static_cast<double>(most));
    high = whole(std::max(std::floor(height / beta / factor), 1.0));
    wide = whole(std::max(std::floor(width / beta / factor), 1.0));
  } else if (long_time * high * wide < s.frame.least_pixels) {
    const double beta = std::sqrt(s.frame.least_pixels / (n * height * width));
    high = whole(std::ceil(height * beta / factor));
    wide = whole(std::ceil(width * beta / factor));
  }
  return Size{static_cast<int>(wide), static_cast<int>(high)};
}

}  // namespace

Result<std::vector<int64_t>> taken_frames(const VideoSettings& settings, int64_t total,
                                          double rate) {
  if (total < 1 || total > kMaxVideoFrames) {
    return bad_input(
        fmt::format("the video has {} frames, expected 1 to {}", total, kMaxVideoFrames));
  }
  auto frames = settings.samples ? FERRY_TRY(sampled(settings, total, rate)) : all_frames(total);
  if (std::ssize(frames) > kMaxTakenFrames) {
    return bad_input(fmt::format("the video processor takes {} frames; the limit is {}",
                                 frames.size(), kMaxTakenFrames));
  }
  const int64_t least = settings.kind == VideoKind::kQwen3Vl ? settings.frame.frames : 1;
  if (std::ssize(frames) >= least) return frames;
  return bad_input(
      fmt::format("the video processor takes {} frames; {} are the least", frames.size(), least));
}

Result<Size> video_size(Size frame, int64_t frames, const VideoSettings& settings) {
  if (settings.kind == VideoKind::kQwen3Vl) return qwen3_size(frame, frames, settings);
  const double longer = std::max(frame.width, frame.height);
  if (longer / std::min(frame.width, frame.height) > 200) {
    return bad_input(
        fmt::format("a side of a frame is more than 200 times as long as the other: "
                    "{} x {}",
                    frame.width, frame.height));
  }
  return qwen2_size(frame, frames, settings);
}

}  // namespace ferry::media
