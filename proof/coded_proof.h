// CodedProof compares the outputs of a bundle with rounded or quantised weights with a model that
// has these weights. Rounding of weights then explains nothing: every difference is an error, or
// the loss by rounded activations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/loaded_part.h"
#include "proof/parity_report.h"
#include "proof/progress.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"
#include "proof/stored_weights.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct CodedProof {
  // Both members are comparisons with the checkpoint's model in f32 that has the weights of the
  // bundle (codes times scales).
  ParityReport exact;        // the bundle with f32 activations, held to the noise of f32
  ParityReport activations;  // the bundle as it is, only measured or held to measured floors
  std::string absent;        // why nothing was compared; otherwise empty

  bool parity() const { return !absent.empty() || (exact.parity && activations.parity); }
};

struct CodedProofOptions {
  std::optional<double> tolerance;
  std::optional<uint64_t> memory;
  runner::DecodeOptions decode;
  bool details = false;    // see proof::VerifyOptions
  Progress progress = {};  // see ExecutionOptions
};

// `layers` must be planned by plan_f32_layers() for these prompts.
Result<CodedProof> prove_codes(const packer::Bundle& bundle, const StoredWeights& stored,
                               const plan::Conversion& layers,
                               const std::vector<RecordedPrompt>& prompts,
                               const CodedProofOptions& options, ThreadPool& pool);

// Does this for any program; `weights` reads its weights as f32.
Result<CodedProof> prove_codes(const packer::Bundle& bundle, const ReadWeight& weights,
                               const plan::Conversion& layers,
                               const std::vector<RecordedPrompt>& prompts,
                               const CodedProofOptions& options, ThreadPool& pool);

}  // namespace ferry::proof
