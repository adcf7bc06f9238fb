// SoundRows turns sound files into rows for the text decoder of a bundle that hears: windows of
// log-mel frames go through the audio encoder, and take the place of placeholders.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/log_mel.h"
#include "packer/bundle_reader.h"
#include "prompt/sound_prompt.h"
#include "runner/token_embedder.h"
#include "runner/vision_encoder.h"

namespace ferry::prompt {

struct EncodedSound {
  double seconds = 0;           // duration of the sound
  int64_t windows = 0;          // that it was padded to
  int64_t rows = 0;             // of all windows
  std::vector<float> features;  // [rows,hidden_size]
};

class SoundRows {
 public:
  // Whether the audio encoder of a bundle makes rows of its text decoder.
  static bool is_in(const packer::Bundle& bundle);
  // Whether such a bundle has the file that makes its prompts. Others take token ids alone.
  static bool has_prompts(const packer::Bundle& bundle);
  // Opens the settings of the feature extractor and the tokenizer. kUsage for a bundle that takes
  // no sound among its tokens; errors as for sound_settings() and SoundPrompt::open().
  static Result<SoundRows> open(const packer::Bundle& bundle);

  // `pool` must outlive this object.
  Status load_encoder(ThreadPool& pool, const runner::MethodOptions& options);
  bool has_encoder() const { return encoder_ != nullptr; }
  // Encodes samples of one channel at `rate`, and a file. Both require load_encoder().
  Result<EncodedSound> encode(std::span<const float> samples, int64_t rate);
  Result<EncodedSound> encode(const std::string& path);

  SoundPrompt& prompts() { return prompts_; }

 private:
  SoundRows(packer::Bundle bundle, const media::LogMelSettings& settings, SoundPrompt prompts)
      : bundle_(std::move(bundle)), settings_(settings), prompts_(std::move(prompts)) {}

  packer::Bundle bundle_;  // shares the mapped files
  media::LogMelSettings settings_;
  SoundPrompt prompts_;
  std::unique_ptr<runner::VisionEncoder> encoder_;
  ThreadPool* pool_ = nullptr;
};

// Returns the rows of the sounds at their places, as views of `sounds`.
std::vector<runner::EmbeddingRows> rows_of(const SoundTokens& tokens,
                                           std::span<const EncodedSound> sounds);
// Returns the rows of each sound.
std::vector<int64_t> row_counts(std::span<const EncodedSound> sounds);

}  // namespace ferry::prompt
