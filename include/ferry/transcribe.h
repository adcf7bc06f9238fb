// Transcriber turns speech into text with a bundle that has an audio encoder (docs/audio.md).
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>
#include <ferry/sound.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

struct TranscribeOptions {
  std::string language = {};  // such as "en"; empty: detected
  std::string task = {};      // "transcribe" or "translate"; empty: what the model's files say
  bool timestamps = false;    // sound longer than a window always has them
};

// A part of a transcription.
struct Segment {
  double start = 0, end = 0;    // in seconds
  std::string text;             // without special tokens
  std::vector<int64_t> tokens;  // with those of time
};

struct Transcription {
  std::string text;                    // of all segments, without special tokens
  std::vector<Segment> segments;       // without timestamps one for each window
  std::vector<int64_t> tokens;         // of all segments
  std::vector<int64_t> forced_tokens;  // those that each window begins with
  std::string forced;                  // the forced tokens as text
  bool timestamps = false;             // whether tokens of time were generated
  double duration = 0;                 // of the sound, in seconds
  int64_t windows = 0;                 // how many times the encoder ran
  double encode_seconds = 0, decode_seconds = 0;
};

// Transcribes one sound at a time. Move-only. Holds its bundle and its engine.
class Transcriber {
 public:
  // `memory` is the most bytes of planned memory; default: the memory that the system has
  // available. kUsage for a bundle without an audio encoder.
  static Result<Transcriber> load(const Bundle& bundle, const Engine& engine,
                                  std::optional<uint64_t> memory = {});
  ~Transcriber();
  Transcriber(Transcriber&&) noexcept;
  Transcriber& operator=(Transcriber&&) noexcept;

  // kUsage for an option that the model does not have, and for a sound that it does not take
  // because of its length; kBadInput for a damaged file; kUnsupported for other formats and rates.
  // Progress is in frames of the sound.
  Result<Transcription> transcribe(const Sound& sound, const TranscribeOptions& options = {},
                                   const OnProgress& progress = {});

 private:
  struct Impl;
  explicit Transcriber(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace ferry
