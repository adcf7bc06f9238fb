// What one bundle computes, recorded as a reference for another bundle of the same model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/manifest.h"
#include "runner/decoder.h"

namespace ferry {

// Prompts that any model of this vocabulary and context can run: pseudo-random ids, always the
// same ones for the same manifest. At least one prompt of one token.
std::vector<std::vector<int64_t>> probing_prompts(const Manifest& manifest);

// Runs every prompt token by token from position 0, then continues greedily for as many tokens as
// fit, eight at most. The tensors are those of docs/verifying.md: input_ids, logits, hidden states
// (as far as the bundle has probes), greedy_ids and greedy_logits, for prompts "0", "1", ...
// `name` is what messages call the result.
Result<std::unique_ptr<TensorSource>> record_reference(
    Decoder& decoder, const Manifest& manifest, const std::vector<std::vector<int64_t>>& prompts,
    const std::string& name);

}  // namespace ferry
