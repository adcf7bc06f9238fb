// Values that follow from the position of a token alone, and that programs look up in tables: the
// place in a chunk of positions, and the growth of queries (Llama 4).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// Returns function(at), from a table of its values for 0 to count - 1: i64 [...] -> f32 [...,1].
// `name` tells apart the tables of one length.
ValueId tabled(GraphBuilder& b, ValueId at, const std::string& name, int64_t count,
               const std::function<float(int64_t)>& function);

// Returns whether each key is not before the chunk of each query: bool [T, keys]. `distance` i64
// [T, keys] is the position of the query minus that of the key.
ValueId in_chunk(GraphBuilder& b, const DecoderContext& c, ValueId distance);

// Whether queries of layers without RoPE grow within the context (ScalarConfig::query_growth).
bool plain_queries_grow(const DecoderContext& c);
// Returns the factors of queries at positions i64 [...,T]: f32 [...,T,1,1].
ValueId query_growth(GraphBuilder& b, const DecoderContext& c, ValueId positions);

}  // namespace ferry::converters
