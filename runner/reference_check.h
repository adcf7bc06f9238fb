// Whether a reference can belong to a model at all: what `verify` would refuse is refused before a
// bundle is made with it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/result.h"
#include "core/shape.h"
#include "runner/reference.h"

namespace ferry {

struct ModelSizes {
  int64_t vocab_size = 0, hidden_size = 0, context_length = 0, num_layers = 0;
  std::map<std::string, Shape> buffers;  // by name
};

// Tokens, lengths, shapes, dtypes and finite values of all that verify() compares. kBadInput with
// the first thing that does not fit. Prompts with images are left out, as verify() does.
Status check_reference(const Reference& reference, const ModelSizes& model);

}  // namespace ferry
