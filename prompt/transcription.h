// Transcriber turns sound into text with a model of speech, as generate() of transformers does by
// default. Models of frames have that of WhisperForConditionalGeneration: greedy, with forced,
// suppressed and timestamp tokens, and sequential over windows where timestamps are asked for or
// the sound is longer than one window. Models of samples have the plain one, and take the whole
// sound at once. Models with labels (CTC) have no decoder: the likeliest label of each row counts,
// equal neighbours are one, and the blank is left out. Language models that hear (Voxtral) answer
// the request to write the sound down, greedily, until an end token or the end of the context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/sound_settings.h"
#include "packer/bundle_reader.h"
#include "prompt/sound_rows.h"
#include "prompt/speech_rules.h"
#include "prompt/speech_settings.h"
#include "runner/audio_encoder.h"
#include "runner/decoder.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::prompt {

struct TranscriptionOptions {
  std::optional<std::string> language = {};  // "en" or "<|en|>"; nullopt: detected
  std::optional<std::string> task = {};      // "transcribe" or "translate"
  bool timestamps = false;
  // Receives (done, total) in frames of the sound.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

struct Transcript {
  std::vector<int64_t> forced;  // the tokens that each window begins with
  std::vector<SpeechSegment> segments;
  std::string text = {};         // of all segments, without special tokens
  std::string forced_text = {};  // the forced tokens as text
  bool timestamps = false;       // whether tokens of time were generated
  double duration = 0;           // of the sound, in seconds
  int64_t windows = 0;           // how many times the encoder ran
  double encode_seconds = 0, decode_seconds = 0;

  std::vector<int64_t> tokens() const;  // of all segments
};

class Transcriber {
 public:
  // `pool` must outlive the transcriber. kUsage for a bundle without an audio encoder; errors as
  // for load_decoder(), speech_settings(), sound_settings() and load_tokenizer(); kBadInput if the
  // encoder does not take what the feature extractor makes.
  static Result<Transcriber> load(const packer::Bundle& bundle, ThreadPool& pool,
                                  const runner::MethodOptions& options);

  // Transcribes samples of one channel at `rate`. kUsage for a language, task or timestamps that
  // the model does not have, and for a sound that is too long or too short.
  Result<Transcript> transcribe(std::span<const float> samples, int64_t rate,
                                const TranscriptionOptions& options);

 private:
  static Result<Transcriber> load_model(const packer::Bundle& bundle, ThreadPool& pool,
                                        const runner::MethodOptions& options);
  // Returns the tokens of a transcript, without their texts.
  Result<Transcript> make_tokens(std::span<const float> samples, int64_t rate,
                                 const TranscriptionOptions& options);
  // Returns the text of the tokens that are no timestamps.
  Result<std::string> text_of(std::vector<int64_t> tokens) const;
  // The first token that is a timestamp and no text.
  int64_t first_timestamp() const { return settings_.first_timestamp(vocab_); }

  Transcriber(std::unique_ptr<runner::Decoder> decoder, SpeechSettings settings,
              const media::SoundSettings& sound, int64_t vocab, int64_t positions, ThreadPool& pool)
      : decoder_(std::move(decoder)),
        settings_(std::move(settings)),
        sound_(sound),
        vocab_(vocab),
        positions_(positions),
        pool_(&pool) {}

  Result<Transcript> transcribe_windows(const media::LogMelSettings& mel,
                                        std::span<const float> samples, int64_t rate,
                                        const TranscriptionOptions& options);
  Transcriber(std::unique_ptr<runner::Decoder> decoder, SpeechSettings settings, SoundRows rows,
              const media::LogMelSettings& sound, const packer::Manifest& manifest,
              ThreadPool& pool)
      : decoder_(std::move(decoder)),
        rows_(std::move(rows)),
        settings_(std::move(settings)),
        sound_(sound),
        vocab_(manifest.vocab_size),
        positions_(manifest.context_length),
        pool_(&pool) {}
  static Result<Transcriber> load_rows(const packer::Bundle& bundle,
                                       const media::LogMelSettings& sound, ThreadPool& pool,
                                       const runner::MethodOptions& options);
  Result<Transcript> transcribe_rows(std::span<const float> samples, int64_t rate,
                                     const TranscriptionOptions& options);
  Transcriber(runner::AudioEncoder encoder, std::string where, int64_t blank,
              const media::NormalizedMelSettings& sound, ThreadPool& pool)
      : encoder_(std::move(encoder)),
        blank_(blank),
        sound_(sound),
        vocab_(encoder_->sizes().labels),
        positions_(encoder_->sizes().rows),
        pool_(&pool) {
    settings_.where = std::move(where);
  }
  static Result<Transcriber> load_labels(const packer::Bundle& bundle,
                                         const media::NormalizedMelSettings& sound,
                                         ThreadPool& pool, const runner::MethodOptions& options);

  Result<Transcript> transcribe_labels(const media::NormalizedMelSettings& mel,
                                       std::span<const float> samples, int64_t rate,
                                       const TranscriptionOptions& options);
  // kUsage for options of models that have no other tokens than those of text.
  Status check_text_alone(const TranscriptionOptions& options) const;
  Result<Transcript> transcribe_whole(const media::WaveformSettings& wave,
                                      std::span<const float> samples, int64_t rate,
                                      const TranscriptionOptions& options);
  // Encodes the frames [seek, seek + count) of the sound, padded with zeros to `width`.
  Status encode(const media::Features& features, int64_t seek, int64_t count, int64_t width,
                Transcript& out);
  // kUsage if a window cannot have `most` tokens, of which `forced` are forced.
  Status check_length(int64_t forced, int64_t most) const;
  Result<std::vector<int64_t>> forced_tokens(const TranscriptionOptions& options, bool timestamps);
  Result<int64_t> detect_language();
  // Generates the tokens of the window that was encoded. `most` is the most tokens with the forced
  // ones.
  Result<std::vector<int64_t>> generate(std::span<const int64_t> forced, int64_t most,
                                        bool timestamps);

  // A decoder with its encoder, or an encoder with labels.
  std::unique_ptr<runner::Decoder> decoder_ = nullptr;
  std::optional<runner::AudioEncoder> encoder_ = {};
  std::optional<SoundRows> rows_ = {};  // of a decoder that takes rows of sound
  int64_t blank_ = 0;                   // the label that is left out
  SpeechSettings settings_;
  media::SoundSettings sound_;
  int64_t vocab_, positions_;
  ThreadPool* pool_;
  std::optional<text::Tokenizer> tokenizer_ = {};  // set by load()
  std::vector<float> window_, logits_;
};

}  // namespace ferry::prompt
