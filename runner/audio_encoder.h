// AudioEncoder runs the audio encoder of a bundle. Log-mel frames or samples go in, keys and values
// of the text decoder's cross-attention come out, or the outputs of labels where there is no
// decoder.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "runner/encoder_probes.h"
#include "runner/program_set.h"

namespace ferry::runner {

class AudioEncoder {
 public:
  // Either the exact sizes of frames, or the most samples. An encoder with labels takes any number
  // of frames up to `frames`, of which it makes at most `rows`.
  struct Sizes {
    int64_t mel_bins = 0, frames = 0;
    int64_t samples = 0;
    int64_t labels = 0, rows = 0;
    bool takes_samples() const { return samples > 0; }
    bool gives_labels() const { return labels > 0; }
  };

  static bool is_in(const packer::Bundle& bundle);
  // Returns the sizes that the manifest states. kBadInput if the input does not follow the
  // protocol.
  static Result<Sizes> sizes_in(const packer::Bundle& bundle);
  // Loads the encoder, whose outputs are `outputs`. `pool` must outlive it. kBadInput for a program
  // that does not follow the protocol.
  static Result<AudioEncoder> load(const packer::Bundle& bundle, std::span<const PortType> outputs,
                                   ThreadPool& pool, const MethodOptions& options,
                                   MemoryBudget& budget);

  // Loads an encoder that is the whole model, whose output is token_logits. kUnsupported for one
  // with another output.
  static Result<AudioEncoder> load_with_labels(const packer::Bundle& bundle, ThreadPool& pool,
                                               const MethodOptions& options);

  const Sizes& sizes() const { return sizes_; }
  // Encodes input_features f32 [mel_bins,frames], with labels [frames,mel_bins], or input_values
  // f32 [samples]. kUsage for another number of values, or for samples or frames that are too many
  // or too few.
  Status encode(std::span<const float> features);
  // The outputs of an encoder with labels, f32 [rows,labels], valid until the next encode().
  std::span<const float> logits() const;
  // Returns an output in the order of load(), valid until the next encode().
  const TensorView& output(size_t index) const { return chain_.output(index); }

  // The sink is called for every probe in encode(): name, and f32 values [rows, width].
  using ProbeSink = EncoderProbeSink;
  Status set_probe_sink(ProbeSink sink);

 private:
  Status encode_samples(std::span<const float> samples);
  Status encode_frames(std::span<const float> frames);
  AudioEncoder(ProgramSet set, MethodChain chain, Sizes sizes)
      : set_(std::move(set)),
        chain_(std::move(chain)),
        sizes_(sizes),
        sink_(std::make_unique<ProbeSink>()) {}

  ProgramSet set_;
  MethodChain chain_;
  Sizes sizes_;
  std::unique_ptr<ProbeSink> sink_;  // on the heap, because methods point to it
  bool observing_ = false;
};

}  // namespace ferry::runner
