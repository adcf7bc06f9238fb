// TextModel is the text model of a bundle, a decoder or an encoder, or its audio encoder with
// labels, ready to be compared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/parity_report.h"
#include "proof/prompts.h"
#include "proof/reference_proof.h"
#include "proof/reference_recorder.h"
#include "runner/audio_encoder.h"
#include "runner/decoder.h"
#include "runner/text_encoder.h"

namespace ferry::proof {

class TextModel {
 public:
  // `bundle` and `pool` must outlive the TextModel. Errors are those of load_decoder() and
  // TextEncoder::load(); kUsage for a decode mode of an encoder.
  static Result<TextModel> load(const packer::Bundle& bundle, ThreadPool& pool,
                                const runner::MethodOptions& options,
                                const runner::DecodeOptions& decode = {});

  // Returns nullptr if the model is an encoder of text or sound.
  runner::Decoder* decoder() const { return decoder_.get(); }
  // Returns the number of tokens of the longest sequence, or of the rows of the longest sound.
  int64_t capacity() const;

  Result<ParityReport> verify(const Reference& reference, const ParityBounds& bounds,
                              const VerifyOptions& options);
  // See record_reference().
  Result<std::unique_ptr<TensorSource>> record(const std::vector<RecordedPrompt>& prompts,
                                               const std::string& name);
  // See continue_prompts(). The prompts of an encoder have no continuation.
  Status continue_prompts(int64_t capacity, std::vector<RecordedPrompt>& prompts,
                          int64_t least = kGreedyTokens);

 private:
  explicit TextModel(const packer::Manifest& manifest) : manifest_(&manifest) {}

  const packer::Manifest* manifest_;
  // Exactly one of these is set.
  std::unique_ptr<runner::Decoder> decoder_;
  std::optional<runner::TextEncoder> encoder_;
  std::optional<runner::AudioEncoder> audio_;
};

}  // namespace ferry::proof
