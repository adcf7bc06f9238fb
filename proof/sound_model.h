// Proofs of audio encoders that are the whole model: they give outputs of labels for each row of a
// sound, and take no tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/manifest.h"
#include "proof/parity_report.h"
#include "proof/reference_proof.h"
#include "proof/reference_recorder.h"
#include "runner/audio_encoder.h"

namespace ferry::proof {

// Encodes the sound of every prompt, and compares the inputs of the layers, the last state and the
// outputs of the labels.
Result<ParityReport> verify_sounds(runner::AudioEncoder& encoder, const packer::Manifest& manifest,
                                   const Reference& reference, const ParityBounds& bounds,
                                   const VerifyOptions& options);

// Makes the tensors of a reference for every prompt. Messages call the result `name`.
Result<std::unique_ptr<TensorSource>> record_sounds(runner::AudioEncoder& encoder,
                                                    const packer::Manifest& manifest,
                                                    const std::vector<RecordedPrompt>& prompts,
                                                    const std::string& name);

}  // namespace ferry::proof
