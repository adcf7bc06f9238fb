// Compares the vision tower, or the audio encoder whose rows take the place of embeddings, with the
// tensors of a reference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/manifest.h"
#include "proof/bounds.h"
#include "proof/error_details.h"
#include "proof/parity_report.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"
#include "proof/reference_recorder.h"
#include "runner/row_encoders.h"

namespace ferry::proof {

struct TowerComparison {
  std::vector<LayerResult> layers;  // in the order in which the tower computes them
  std::vector<float> features;      // features of the pixels
};

// Encodes the pixels of `images`. `details` may be null.
Result<TowerComparison> compare_tower(runner::VisionEncoder& vision,
                                      const packer::Manifest& manifest, const Reference& reference,
                                      const ReferencePrompt& prompt, const PromptImages& images,
                                      const ParityBounds& bounds, DetailCollector* details);

// Records the outputs of the tower for prompts with pixel values as the tensors of a reference, and
// sets the features of these prompts. Returns nullptr if there are no such prompts.
Result<std::unique_ptr<TensorSource>> record_tower(const runner::RowEncoders& encoders,
                                                   std::vector<RecordedPrompt>& prompts,
                                                   const std::string& name);

}  // namespace ferry::proof
