// Rules about the tokens of a transcript: which may come next, and how timestamps cut the tokens of
// a window into segments. They are those of transformers 5.23: SuppressTokensLogitsProcessor,
// SuppressTokensAtBeginLogitsProcessor, WhisperTimeStampLogitsProcessor, and _retrieve_segment of
// generation_whisper.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prompt/speech_settings.h"

namespace ferry::prompt {

// Sets the logits [V] of tokens that may not come next to -infinity. `tokens` are those of the
// window behind its forced tokens. The rules for timestamps hold with `timestamps`, which needs
// SpeechSettings::no_timestamps.
void apply_speech_rules(const SpeechSettings& settings, std::span<const int64_t> tokens,
                        bool timestamps, std::span<float> logits);

inline constexpr double kTimestampSeconds = 0.02;

// A part of a transcript.
struct SpeechSegment {
  double start = 0, end = 0;    // in seconds
  std::vector<int64_t> tokens;  // with timestamps, without the token of the end
  std::string text = {};        // without special tokens; Transcriber writes it
};

struct WindowSegments {
  std::vector<SpeechSegment> segments;
  int64_t advance = 0;  // frames to the next window
};

// Cuts the tokens of a window of `frames` frames that begins at frame `seek`. A frame is a half of
// kTimestampSeconds; the tokens from `first_timestamp` on are timestamps.
WindowSegments cut_window(std::span<const int64_t> tokens, int64_t seek, int64_t frames,
                          int64_t first_timestamp);

}  // namespace ferry::prompt
