// verify() runs a bundle on the prompts of a reference and measures, for each tensor, the distance
// from the outputs of the original model.
#pragma once

#include <cstdint>
#include <functional>

#include "core/result.h"
#include "proof/parity_report.h"
#include "proof/reference.h"
#include "runner/decoder.h"
#include "runner/row_encoders.h"

namespace ferry::proof {

struct VerifyOptions {
  // Another reference for these prompts. It has the experts that tokens pass through, and the
  // logits that tokens of the continuation are chosen from, where `reference` lacks them.
  const Reference* recorded = nullptr;
  bool continuation = true;  // compare the continuation as well
  // The encoders of images and sounds of this bundle. They encode the pixel values or frames of
  // prompts, and their output is compared with the features of these. nullptr: the features of the
  // reference are used.
  const runner::RowEncoders* encoders = nullptr;
  bool details = false;  // collect CaseReport::details
  // Receives (done, total) in tokens that were run; may be empty.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

// Runs every prompt twice: token by token from position 0, and in one forward that the greedy
// continuation follows. If the reference states the experts of its tokens, the bundle's tokens pass
// through these experts; the choices of the bundle's own routers are compared and counted.
// kUnsupported if no prompt can be run; kBadInput for a reference of another model.
Result<ParityReport> verify(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const Reference& reference, const ParityBounds& bounds,
                            const VerifyOptions& options = {});

// Compares two references. `got` has the computed tensors of prompts with equal names and tokens.
// Prompts that only one of them has are left out.
Result<ParityReport> compare_references(const Reference& got, const Reference& want,
                                        const ParityBounds& bounds,
                                        const VerifyOptions& options = {});

}  // namespace ferry::proof
