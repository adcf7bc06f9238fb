// Checks whether a reference fits a model: check_reference() before a bundle is made with it,
// check_prompt() and check_continuation() before a bundle runs a prompt. Both
// refuse equal references.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
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
  int64_t experts = 0, experts_per_token = 0;  // 0: no layers with experts
};

// Checks tokens, lengths, shapes, dtypes and finite values of all tensors that verify() compares.
// kBadInput with the first error. Prompts with images are left out, as in verify().
Status check_reference(const Reference& reference, const packer::Manifest& model,
                       const ReferenceShapes& shapes);

// Returns the tokens per call of kv_forward; 1 if the manifest does not state them.
int64_t decode_length(const packer::Manifest& manifest);
// Returns the most tokens of a sequence that a reference can have: the context length. For static
// programs, the columns that a call of kv_forward needs for its own tokens are subtracted. With an
// attention sink, the tokens that attend to all tokens before them, as in the model.
int64_t longest_sequence(const packer::Manifest& manifest);

}  // namespace ferry::proof
