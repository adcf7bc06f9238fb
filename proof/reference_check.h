// check_reference() checks whether a reference fits a model, before a bundle is made with it. It
// refuses what `verify` would refuse.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/result.h"
#include "core/shape.h"
#include "packer/manifest.h"
#include "proof/reference.h"

namespace ferry::proof {

// Shapes and counts that the manifest does not state.
struct ReferenceShapes {
  std::map<std::string, Shape> buffers;        // by name
  int64_t experts = 0, experts_per_token = 0;  // 0: no sparse layers
};

// Tokens, lengths, shapes, dtypes and finite values of all that verify() compares. kBadInput with
// the first thing that does not fit. Prompts with images are left out, as verify() does.
Status check_reference(const Reference& reference, const packer::Manifest& model,
                       const ReferenceShapes& shapes);

}  // namespace ferry::proof
