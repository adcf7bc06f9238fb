// Runs text encoders on prompts: compares what they compute with a reference, or records it as one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/parity_report.h"
#include "proof/reference.h"
#include "proof/reference_proof.h"
#include "proof/reference_recorder.h"
#include "runner/text_encoder.h"

namespace ferry::proof {

// Every prompt in one call: hidden states, the last one, and the vector. Otherwise as verify() of a
// decoder. Of the options, `details` and `progress` count.
Result<ParityReport> verify(runner::TextEncoder& encoder, const packer::Manifest& manifest,
                            const Reference& reference, const ParityBounds& bounds,
                            const VerifyOptions& options = {});

// The tensors of a reference for every prompt; continuations are left out. Messages call the result
// `name`.
Result<std::unique_ptr<TensorSource>> record_reference(runner::TextEncoder& encoder,
                                                       const packer::Manifest& manifest,
                                                       const std::vector<RecordedPrompt>& prompts,
                                                       const std::string& name);

}  // namespace ferry::proof
