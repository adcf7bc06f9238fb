// CodedProof: what a bundle with rounded or quantised weights computes, held to its own weights.
// Rounding of weights then explains nothing: whatever differs is a mistake, or what the activations
// lose.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/parity_report.h"
#include "proof/progress.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"
#include "proof/stored_weights.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct CodedProof {
  // The checkpoint's model in f32 with the weights that the bundle stores, codes times scales, is
  // what both are compared with.
  ParityReport exact;        // the bundle with activations in f32, held to the noise of f32
  ParityReport activations;  // the bundle as it is: measured, or held to measured floors
  std::string absent;        // why nothing was compared; otherwise empty

  bool parity() const { return !absent.empty() || (exact.parity && activations.parity); }
};

struct CodedProofOptions {
  std::optional<double> tolerance;
  std::optional<uint64_t> memory;
  runner::DecodeOptions decode;
  bool details = false;    // as in proof::VerifyOptions
  Progress progress = {};  // as in ExecutionOptions
};

// `layers` is planned by plan_f32_layers() for these prompts.
Result<CodedProof> prove_codes(const packer::Bundle& bundle, const StoredWeights& stored,
                               const plan::Conversion& layers,
                               const std::vector<RecordedPrompt>& prompts,
                               const CodedProofOptions& options, ThreadPool& pool);

}  // namespace ferry::proof
