// prove_encoder() runs the text encoder of a bundle on the prompts of a reference, and measures how
// far its states and vectors are from what the original model computed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/bundle_reader.h"
#include "proof/bounds.h"
#include "proof/reference.h"
#include "runner/text_encoder.h"

namespace ferry::proof {

struct EncodedTensor {
  std::string name;  // "hidden_states.3", "last_hidden_state", "sentence_embedding"
  ValueMetrics metrics = {};
  bool within = true;                   // its bounds
  std::optional<double> floor_db = {};  // of its signal-to-noise ratio, where it has one
};

struct EncoderCase {
  std::string prompt;
  int64_t tokens = 0;
  std::vector<EncodedTensor> tensors = {};     // in model order
  std::vector<std::string> not_compared = {};  // reference tensors without a counterpart
  bool parity() const;
};

struct EncoderProof {
  ParityBounds bounds = {};
  std::vector<EncoderCase> cases = {};
  bool parity() const;
};

// kBadInput for a reference that does not belong to the model, or has neither last_hidden_state nor
// sentence_embedding of a prompt. `progress` takes (done, total) tokens and may be empty.
Result<EncoderProof> prove_encoder(runner::TextEncoder& encoder, const packer::Manifest& manifest,
                                   const Reference& reference, const ParityBounds& bounds,
                                   const std::function<void(uint64_t, uint64_t)>& progress = {});

// Whether prove_encoder() would take the reference: tokens, lengths, shapes, dtypes and finite
// values.
Status check_encoder_reference(const Reference& reference, const runner::TextEncoder::Sizes& sizes,
                               int64_t layers);

}  // namespace ferry::proof
