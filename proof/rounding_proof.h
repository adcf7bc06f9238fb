// Verifies a bundle in half precision, or a quantised one, with a reference and without the
// checkpoint. The bundle is executed twice: as it is, and with f32 activations. The difference is
// the rounding error of this model, from which the bounds follow.
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

// A reference can distinguish a correct quantised bundle from a wrong one only if the logits of the
// bundle with f32 activations have at least this signal-to-noise ratio. Below it, the loss by
// quantisation hides most errors.
inline constexpr double kTellingDb = 10;

struct RoundingProof {
  // The bundle's program with f32 activations against the reference. If no weight was rounded, the
  // program is held to its own noise. Otherwise it is held to `rounding`: each tensor may have as
  // much noise as rounding the activations makes, and kRoundedWeightsDb more. If weights are
  // quantised, the result is only a measurement.
  ParityReport in_f32;
  bool exact_weights = false;  // no weight was rounded
  // Number of choices that were replaced by the reference's, because rounded weights may send a
  // token to other experts. If any was replaced, the continuation, whose experts are not known, is
  // not compared.
  int64_t exchanged = 0;
  // The bundle as it is against the bundle with f32 activations. The result is only a measurement,
  // except that 8-bit activations are held to their noise.
  ParityReport rounding;
  // The bundle as it is against the reference; only a measurement.
  ParityReport outputs;
  bool decided = true;  // whether the reference can distinguish a correct bundle from a wrong one
  // False if any comparison shows an error. If `decided` is false, true means little.
  bool parity() const { return in_f32.parity && rounding.parity && outputs.parity; }
};

// Rounding every weight makes about as much noise as rounding every activation.
inline constexpr double kRoundedWeightsDb = 10;

struct RoundingOptions {
  std::optional<uint64_t> memory = {};  // limit of the bundle's planned memory in bytes
  runner::DecodeOptions decode = {};    // how the bundle decodes
  bool details = false;                 // see VerifyOptions
  Progress progress = {};               // see VerifyOptions
};

// `bounds` are bounds_of() the bundle, which rounds or quantises.
Result<RoundingProof> prove_rounding(const packer::Bundle& bundle, const Reference& reference,
                                     const ParityBounds& bounds, const RoundingOptions& options,
                                     ThreadPool& pool);

// Returns the experts of a prompt and its continuation that a reference states.
Result<runner::ExpertRoutes> routes_of(const Reference& reference, const ReferencePrompt& prompt,
                                       int64_t layers);

// Returns the prompts of a reference that a bundle can run, checked. kUnsupported if there is none.
// Prompts that have only pixel values are left out, unless the caller gives them features
// (`with_pixels`).
Result<std::vector<RecordedPrompt>> prompts_of(const Reference& reference,
                                               const packer::Manifest& manifest,
                                               bool with_pixels = false);

}  // namespace ferry::proof
