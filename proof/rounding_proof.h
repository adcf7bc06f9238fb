// Verifies a bundle in half precision or quantised with a reference and without the checkpoint. The
// bundle is executed twice: as it is, and with its activations in f32. The difference is the
// rounding error of this model, from which the bounds follow.
#pragma once

#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/parity_report.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"
#include "proof/verify.h"

namespace ferry::proof {

struct RoundingProof {
  // The bundle's program with activations in f32, against the reference. Where no weight was
  // rounded it is held to the f32 bounds, else to `rounding`: each tensor may have as much noise as
  // rounding the activations makes, and kRoundedWeightsDb more. Where weights are quantised it is
  // held to the floors of that.
  ParityReport in_f32;
  bool exact_weights = false;  // no weight was rounded
  // Rounded weights may send a token to other experts than the reference; so many choices were
  // exchanged for the reference's. Its continuation, whose experts cannot be told, is not compared.
  int64_t exchanged = 0;
  // The bundle as it is, against itself with activations in f32.
  ParityReport rounding;
  // The bundle as it is, against the reference.
  ParityReport outputs;
  bool parity() const { return in_f32.parity && rounding.parity && outputs.parity; }
};

// Rounding every weight makes about as much noise as rounding every activation.
inline constexpr double kRoundedWeightsDb = 10;

// `bounds` are bounds_of() the bundle, with rounding or quantisation. Of `with`
// the details and the progress count.
Result<RoundingProof> prove_rounding(const packer::Bundle& bundle, const Reference& reference,
                                     const ParityBounds& bounds, std::optional<uint64_t> memory,
                                     ThreadPool& pool, const runner::DecodeOptions& decode = {},
                                     const VerifyOptions& with = {});

// Prompts of a reference that a bundle can run, checked. kUnsupported if there is none.
Result<std::vector<RecordedPrompt>> prompts_of(const Reference& reference,
                                               const packer::Manifest& manifest);

}  // namespace ferry::proof
