// SoundRows turns sound files into rows for the text decoder of a bundle that hears: windows of
// log-mel frames, or the frames of a whole sound, go through the audio encoder, and take the place
// of placeholders.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/sound_settings.h"
#include "packer/bundle_reader.h"
#include "prompt/image_input.h"
#include "prompt/image_prompt.h"
#include "prompt/sound_prompt.h"
#include "runner/token_embedder.h"
#include "runner/vision_encoder.h"

namespace ferry::prompt {

struct EncodedSound {
  double seconds = 0;   // duration of the sound
  double heard = 0;     // duration of what the feature extractor leaves of it
  int64_t windows = 1;  // that it was padded to; 1 for the frames of a whole sound
  int64_t rows = 0;     // of all windows
  // The samples that the feature extractor pads it to, where other sounds of a prompt change that;
  // else 0.
  int64_t padded = 0;
  // The samples at the rate of the extractor, where the sound is encoded again when a longer one
  // joins it.
  std::vector<float> samples = {};
  std::vector<float> features;  // [rows,hidden_size]
};

class SoundRows {
 public:
  // Whether the audio encoder of a bundle makes rows of its text decoder.
  static bool is_in(const packer::Bundle& bundle);
  // Whether such a bundle has the file that makes its prompts as mistral-common does.
  static bool has_prompt_file(const packer::Bundle& bundle);
  // Opens the settings of the feature extractor and, where prompts are those of mistral-common, the
  // tokenizer. kUsage for a bundle that takes no sound among its tokens; errors as for
  // sound_settings() and SoundPrompt::open().
  static Result<SoundRows> open(const packer::Bundle& bundle);

  // `pool` must outlive this object.
  Status load_encoder(ThreadPool& pool, const runner::MethodOptions& options);
  bool has_encoder() const { return encoder_ != nullptr; }
  // Encodes samples of one channel at `rate`, or a file, and adds the sound to those of a prompt.
  // Both require load_encoder(). The sounds of a prompt of Granite Speech and Gemma 3n are padded
  // to the longest: returns whether sounds before this one were encoded again for that. kUsage for
  // a sound that is too long for the context or the encoder, or too short for a row; then `sounds`
  // stays.
  Result<bool> add(std::span<const float> samples, int64_t rate, std::vector<EncodedSound>& sounds);
  Result<bool> add(const std::string& path, std::vector<EncodedSound>& sounds);

  // Whether prompts are those of mistral-common. Others are those of the processor (ImagePrompt).
  bool has_prompts() const { return prompts_.has_value(); }
  SoundPrompt& prompts() { return *prompts_; }

 private:
  SoundRows(packer::Bundle bundle, media::SoundSettings settings)
      : bundle_(std::move(bundle)), settings_(std::move(settings)) {}
  // Fails if the context has no room for the rows.
  Status check_rows(const EncodedSound& sound) const;
  // Sets what follows from the number of samples of a sound, and fails if the encoder does not take
  // as many frames.
  Status measure_whole(int64_t samples, const media::UsmMelSettings& settings,
                       EncodedSound& out) const;
  Status encode_windows(std::vector<float> samples, const media::LogMelSettings& settings,
                        EncodedSound& out);
  Status encode_whole(std::vector<float> samples, const media::UsmMelSettings& settings,
                      EncodedSound& out);
  // Both encode out.samples with zeros behind them up to `padded` samples.
  Status encode_pairs(const media::PairedMelSettings& settings, int64_t padded, EncodedSound& out);
  Status encode_causal(const media::UsmMelSettings& settings, int64_t padded, EncodedSound& out);
  // Whether the sounds of a prompt are padded to the longest, and what does so.
  bool pads_sounds() const;
  int64_t padded_samples(const EncodedSound& sound) const;
  Status encode_padded(int64_t padded, EncodedSound& out);
  Result<EncodedSound> encode(std::vector<float> samples, double seconds);

  packer::Bundle bundle_;  // shares the mapped files
  media::SoundSettings settings_;
  std::optional<SoundPrompt> prompts_ = {};
  std::unique_ptr<runner::VisionEncoder> encoder_;
  ThreadPool* pool_ = nullptr;
};

// Returns the rows of the sounds at their places, as views of `sounds`.
std::vector<runner::EmbeddingRows> rows_of(const SoundTokens& tokens,
                                           std::span<const EncodedSound> sounds);
// Returns the rows of images, sounds and videos, in the order of their places.
std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedImage> images,
                                           std::span<const EncodedSound> sounds,
                                           std::span<const EncodedVideo> videos = {});
// Returns the rows of each sound of a prompt. kUnsupported for sounds of a Gemma 3n whose rows see
// later ones and that the feature extractor would pad to the longest one: it hides rows by a mask.
Result<std::vector<int64_t>> row_counts(std::span<const EncodedSound> sounds);

}  // namespace ferry::prompt
