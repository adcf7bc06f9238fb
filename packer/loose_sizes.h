// Derives the sizes of a model whose text decoder comes without a manifest.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "packer/manifest.h"
#include "packer/stated_values.h"

namespace ferry::packer {

// A method without inputs in stateful programs that have two sets of RoPE factors (longrope). It
// gives the length beyond which sequences use the second set.
inline constexpr std::string_view kRopeSwitchMethod = "get_rope_switch";

// Sets vocab_size, hidden_size, num_layers, context_length, prefill_length, all_logits and
// rope_switch of `manifest` from the named inputs and outputs of `decoder` and from the values that
// the program states. `manifest` must have program_style. kBadInput, with the method, if a stated
// value differs from the shapes; kUnsupported if the program states a batch or no cache.
Status derive_sizes(const ManifestProgram& decoder, const StatedValues& stated, Manifest& manifest);

// kUnsupported if the names of external tensors of `program` ("layers.3.attention...") do not cover
// all `layers` layers, so that the program is a part of a model. 0: any number of layers.
Status check_layers(const pte::Program& program, int64_t layers, const std::string& file);

}  // namespace ferry::packer
