// verify() runs a bundle on the prompts of a reference and measures, tensor by tensor, how far it
// is from what the original model computed.
#pragma once

#include <cstdint>
#include <functional>

#include "core/result.h"
#include "proof/parity_report.h"
#include "proof/reference.h"
#include "runner/decoder.h"
#include "runner/vision_encoder.h"

namespace ferry::proof {

struct VerifyOptions {
  // A reference for these prompts that has the experts that tokens pass through, and the logits
  // that tokens of the continuation are chosen from, where `reference` does not say.
  const Reference* recorded = nullptr;
  bool continuation = true;  // compare the continuation as well
  // The encoder of this bundle: it encodes the pixel values of prompts, and is compared with their
  // features. nullptr: the features of the reference are taken.
  runner::VisionEncoder* vision = nullptr;
  bool details = false;  // collect CaseReport::details
  // Takes (done, total) tokens that were run; may be empty.
  std::function<void(uint64_t, uint64_t)> progress = {};
};

// Every prompt twice: token by token from position 0, and in one forward that the greedy
// continuation follows. Where the reference says which experts its tokens passed through, those of
// the bundle pass through the same ones; what its own routers chose is compared and counted.
// kUnsupported if no prompt can be run; kBadInput for a reference that does not belong to the
// model.
Result<ParityReport> verify(runner::Decoder& decoder, const packer::Manifest& manifest,
                            const Reference& reference, const ParityBounds& bounds,
                            const VerifyOptions& options = {});

// Compares two references: `got` holds what was computed for prompts of the same
// names and tokens. Prompts that only one of them has are left out.
Result<ParityReport> compare_references(const Reference& got, const Reference& want,
                                        const ParityBounds& bounds,
                                        const VerifyOptions& options = {});

}  // namespace ferry::proof
