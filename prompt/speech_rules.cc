#include "prompt/speech_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ferry::prompt {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr int64_t kFramesOfTimestamp = 2;

void forbid(std::span<float> logits, int64_t first, int64_t end) {
  const int64_t size = std::ssize(logits);
  for (int64_t i = std::clamp<int64_t>(first, 0, size); i < std::min(end, size); ++i) {
    logits[static_cast<size_t>(i)] = kNever;
  }
}

// Whether the probability of all timestamps together is above that of every other token.
bool timestamps_are_likelier(std::span<const float> logits, int64_t first_timestamp) {
  const auto text = logits.first(static_cast<size_t>(first_timestamp));
  const auto times = logits.subspan(static_cast<size_t>(first_timestamp));
  if (times.empty()) return false;
  const float best_text = std::ranges::max(text), best_time = std::ranges::max(times);
  if (best_time == kNever) return false;
  double sum = 0.0;
  for (const float value : times) {
    sum += std::exp(static_cast<double>(value) - static_cast<double>(best_time));
  }
  return static_cast<double>(best_time) + std::log(sum) > static_cast<double>(best_text);
}

void apply_timestamp_rules(const SpeechSettings& s, std::span<const int64_t> tokens,
                           std::span<float> logits) {
  const int64_t first = s.first_timestamp(std::ssize(logits));
  const int64_t vocab = std::ssize(logits);
  const auto is_time = [&](int64_t token) { return token >= first; };
  forbid(logits, *s.no_timestamps, *s.no_timestamps + 1);
  const bool last = !tokens.empty() && is_time(tokens.back());
  const bool before = tokens.size() < 2 || is_time(tokens[tokens.size() - 2]);
  // Timestamps come in pairs, but for the first one and one before the end.
  if (last && before) forbid(logits, first, vocab);
  if (last && !before) forbid(logits, 0, s.end);
  const auto latest = std::ranges::find_if(tokens.rbegin(), tokens.rend(), is_time);
  if (latest != tokens.rend()) forbid(logits, first, last && !before ? *latest : *latest + 1);
  if (tokens.empty()) {
    forbid(logits, 0, first);
    if (s.latest_start) forbid(logits, first + *s.latest_start + 1, vocab);
  }
  if (timestamps_are_likelier(logits, std::min(first, vocab))) forbid(logits, 0, first);
}

}  // namespace

void apply_speech_rules(const SpeechSettings& settings, std::span<const int64_t> tokens,
                        bool timestamps, std::span<float> logits) {
  const auto suppress = [&](const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) logits[static_cast<size_t>(id)] = kNever;
  };
  if (tokens.empty()) suppress(settings.suppressed_first);
  suppress(settings.suppressed);
  if (timestamps) apply_timestamp_rules(settings, tokens, logits);
}

WindowSegments cut_window(std::span<const int64_t> tokens, int64_t seek, int64_t frames,
                          int64_t first_timestamp) {
  const auto is_time = [&](size_t i) { return tokens[i] >= first_timestamp; };
  const auto place = [&](size_t i) { return tokens[i] - first_timestamp; };
  const double offset = static_cast<double>(seek) * kTimestampSeconds / kFramesOfTimestamp;
  const auto seconds = [&](int64_t units) {
    return offset + static_cast<double>(units) * kTimestampSeconds;
  };
  const size_t count = tokens.size();
  WindowSegments out;
  out.advance = frames;
  // A segment ends between two timestamps.
  std::vector<size_t> ends;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (is_time(i) && is_time(i + 1)) ends.push_back(i + 1);
  }
  if (ends.empty()) {
    // All of the window is one segment, up to its last timestamp if that is not 0.00.
    int64_t last = frames / kFramesOfTimestamp;
    for (size_t i = count; i-- > 0;) {
      if (!is_time(i)) continue;
      if (place(i) != 0) last = place(i);
      break;
    }
    out.segments.push_back({offset, seconds(last), {tokens.begin(), tokens.end()}});
    return out;
  }
  // One timestamp at the end says that there is no speech behind it. Otherwise tokens behind the
  // last pair are dropped, and the next window begins there.
  const bool single = is_time(count - 1) && !is_time(count - 2);
  if (single) {
    ends.push_back(count);
  } else {
    ends.back() += 1;
  }
  size_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const bool pair = i + 1 == ends.size() && !single;
    const size_t end = ends[i];
    out.segments.push_back({seconds(place(begin)),
                            seconds(place(end - (pair ? 2 : 1))),
                            {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                             tokens.begin() + static_cast<std::ptrdiff_t>(end)}});
    begin = end;
  }
  if (!single) out.advance = place(begin - 2) * kFramesOfTimestamp;
  return out;
}

}  // namespace ferry::prompt
