// CodedProof: what a quantised bundle computes, held to its own weights. Quantisation of weights
// then explains nothing: whatever differs is a mistake, or what the activations lose.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "pipeline/convert.h"
#include "pipeline/progress.h"
#include "pipeline/stored_weights.h"
#include "proof/parity_report.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"
#include "runner/decode_options.h"

namespace ferry::pipeline {

struct CodedProof {
  // The checkpoint's model in f32 with the weights that the bundle stores, codes times scales, is
  // what both are compared with.
  proof::ParityReport exact;        // the bundle with activations in f32; the bounds of f32
  proof::ParityReport activations;  // the bundle as it is
  std::string absent;               // why nothing was compared; otherwise empty

  bool parity() const { return !absent.empty() || (exact.parity && activations.parity); }
};

struct CodedProofOptions {
  std::optional<double> tolerance;  // of `activations`
  std::optional<uint64_t> memory;
  runner::DecodeOptions decode;
  bool details = false;    // as in proof::VerifyOptions
  Progress progress = {};  // as in F32PathOptions
};

// `layers` is planned by plan_f32_layers() for these prompts.
Result<CodedProof> prove_codes(const packer::Bundle& bundle, const StoredWeights& stored,
                               const Conversion& layers,
                               const std::vector<proof::RecordedPrompt>& prompts,
                               const CodedProofOptions& options, ThreadPool& pool);

// What the codes leave in the outputs of this model, without any quantised activation: it is
// computed in f32 with the weights that the bundle stores, and compared with `in_f32`, the f32 path
// of the same prompts. Experts that its routers exchange are part of it.
Result<proof::ParityReport> noise_of_codes(const packer::Bundle& bundle,
                                           const StoredWeights& stored, const Conversion& layers,
                                           const std::vector<proof::RecordedPrompt>& prompts,
                                           const proof::Reference& in_f32, const Progress& progress,
                                           ThreadPool& pool);

}  // namespace ferry::pipeline
