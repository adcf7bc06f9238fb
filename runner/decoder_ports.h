// bind_protocol() binds the inputs and outputs of a stateful text decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "runner/program_set.h"

namespace ferry::runner {

// Indices of inputs and outputs of the chain.
inline constexpr size_t kInput = 0, kInputPos = 1, kAttentionEnd = 2, kLogits = 0;
inline constexpr int64_t kPlaces = 3;  // positions of a token in time, height and width

bool has_port(const ProgramSet& set, std::string_view name);

// Returns how many positions the programs take at most: 1 of the first token of a call, or in
// programs of other tools one of each token.
int64_t position_count(const ProgramSet& set);

// Whether the programs take the position behind the last token that each token attends to.
bool takes_ends(const ProgramSet& set);

// Returns the keys and values of cross-attention that the programs take.
std::vector<PortType> cross_inputs(const ProgramSet::Ports& ports);

// The chain is tokens i64 [1,T] or embeddings f32 [1,T,hidden_size], input_pos i64 [1], in some
// models attention_end i64 [1,T], rope_positions i64 [3,T], deepstack_features f32
// [K,T,hidden_size] and layer_tokens i64 [1,T], then the keys and values `cross` -> logits f32
// [1,V] or [1,T,V]. Programs of other tools that have no caches take no input_pos, and all tokens
// of the sequence in every call. Others of them take input_pos i64 [T], the position of each token.
// Their logits may be in half precision.
Result<MethodChain> bind_protocol(ProgramSet& set, std::span<const PortType> cross);

}  // namespace ferry::runner
