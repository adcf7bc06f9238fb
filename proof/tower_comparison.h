// The vision tower beside the tensors of a reference.
#pragma once

#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "proof/bounds.h"
#include "proof/error_details.h"
#include "proof/parity_report.h"
#include "proof/prompt_images.h"
#include "proof/reference.h"
#include "runner/vision_encoder.h"

namespace ferry::proof {

struct TowerComparison {
  std::vector<LayerResult> layers;  // in the order in which the tower computes them
  std::vector<float> features;      // what the tower makes of the pixels
};

// Encodes the pixels of `images`. `details` may be null.
Result<TowerComparison> compare_tower(runner::VisionEncoder& vision,
                                      const packer::Manifest& manifest, const Reference& reference,
                                      const ReferencePrompt& prompt, const PromptImages& images,
                                      const ParityBounds& bounds, DetailCollector* details);

}  // namespace ferry::proof
