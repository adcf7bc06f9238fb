// Verifies a bundle in half precision or quantised with a reference and without the checkpoint. The
// bundle is executed twice: as it is, and with its activations in f32. The difference is the
// rounding error of this model, from which the bounds follow.
#pragma once

#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/parity_report.h"
#include "proof/progress.h"
#include "proof/reference.h"
#include "proof/reference_proof.h"
#include "proof/reference_recorder.h"

namespace ferry::proof {

// A reference can tell a right quantised bundle from a wrong one where the logits of the
// bundle with activations in f32 have at least this signal-to-noise ratio. Below, what the codes
// lose hides most mistakes.
inline constexpr double kTellingDb = 10;

struct RoundingProof {
  // The bundle's program with activations in f32, against the reference. Where no weight was
  // rounded it is held to its own noise, else to `rounding`: each tensor may have as much noise as
  // rounding the activations makes, and kRoundedWeightsDb more. Where weights are quantised it is
  // measured.
  ParityReport in_f32;
  bool exact_weights = false;  // no weight was rounded
  // Rounded weights may send a token to other experts than the reference; so many choices were
  // exchanged for the reference's. Its continuation, whose experts cannot be told, is not compared.
  int64_t exchanged = 0;
  // The bundle as it is, against itself with activations in f32: measured, but held to the noise of
  // 8-bit activations where it has such.
  ParityReport rounding;
  // The bundle as it is, against the reference: measured.
  ParityReport outputs;
  bool decided = true;  // whether the reference can tell a right bundle from a wrong one
  // False where any of them shows a mistake. Not decided: then it says little that none does.
  bool parity() const { return in_f32.parity && rounding.parity && outputs.parity; }
};

// Rounding every weight makes about as much noise as rounding every activation.
inline constexpr double kRoundedWeightsDb = 10;

struct RoundingOptions {
  std::optional<uint64_t> memory = {};  // bytes that planned memory of the bundle may have
  runner::DecodeOptions decode = {};    // of the bundle
  bool details = false;                 // as in VerifyOptions
  Progress progress = {};               // as in VerifyOptions
};

// `bounds` are bounds_of() the bundle, with rounding or quantisation.
Result<RoundingProof> prove_rounding(const packer::Bundle& bundle, const Reference& reference,
                                     const ParityBounds& bounds, const RoundingOptions& options,
                                     ThreadPool& pool);

// The experts that a reference says the tokens of a prompt and its continuation passed through.
Result<runner::ExpertRoutes> routes_of(const Reference& reference, const ReferencePrompt& prompt,
                                       int64_t layers);

// Prompts of a reference that a bundle can run, checked. kUnsupported if there is none. Prompts
// with pixel values alone are left out, unless the caller gives them features (`with_pixels`).
Result<std::vector<RecordedPrompt>> prompts_of(const Reference& reference,
                                               const packer::Manifest& manifest,
                                               bool with_pixels = false);

}  // namespace ferry::proof
