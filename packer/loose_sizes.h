// The sizes of a model whose text decoder comes without a manifest.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "packer/manifest.h"
#include "packer/stated_values.h"

namespace ferry::packer {

// A method without inputs of stateful programs with two sets of RoPE factors (longrope): sequences
// of more tokens than this have the second one.
inline constexpr std::string_view kRopeSwitchMethod = "get_rope_switch";

// Sets vocab_size, hidden_size, num_layers, context_length, prefill_length, all_logits and
// rope_switch of `manifest`, whose program_style is set, from the ports of `decoder`, which have
// names, and from what the program states. kBadInput, with the method, where it states anything
// else than its ports have; kUnsupported where it states a batch or no cache.
Status derive_sizes(const ManifestProgram& decoder, const StatedValues& stated, Manifest& manifest);

// kUnsupported where the names of external tensors of `program` ("layers.3.attention...") are not
// those of all `layers` layers: a part of a model. 0: however many there are.
Status check_layers(const pte::Program& program, int64_t layers, const std::string& file);

}  // namespace ferry::packer
