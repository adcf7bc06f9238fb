// Checks whether a reference fits a model: check_reference() before a bundle is made with it,
// check_prompt() and check_continuation() before a bundle runs a prompt. They refuse the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/shape.h"
#include "packer/manifest.h"
#include "proof/reference.h"

namespace ferry::proof {

// kBadInput unless the bundle can run the prompt and the prompt has an output to compare with:
// logits, or the last hidden state or vector of an encoder.
Status check_prompt(const Reference& reference, const ReferencePrompt& prompt,
                    const packer::Manifest& manifest);
// kBadInput unless the bundle can run the prompt with `ids` as its continuation.
Status check_continuation(const Reference& reference, const ReferencePrompt& prompt,
                          const std::vector<int64_t>& ids, const packer::Manifest& manifest);

// Shapes and counts that the manifest does not state.
struct ReferenceShapes {
  std::map<std::string, Shape> buffers;        // by name
  int64_t experts = 0, experts_per_token = 0;  // 0: no sparse layers
};

// Tokens, lengths, shapes, dtypes and finite values of all that verify() compares. kBadInput with
// the first thing that does not fit. Prompts with images are left out, as verify() does.
Status check_reference(const Reference& reference, const packer::Manifest& model,
                       const ReferenceShapes& shapes);

// Tokens of a call of kv_forward; 1 where the manifest does not say.
int64_t decode_length(const packer::Manifest& manifest);
// Positions that a sequence can have: the context, less the columns that a call of kv_forward needs
// for its own tokens where programs are static.
int64_t longest_sequence(const packer::Manifest& manifest);

}  // namespace ferry::proof
