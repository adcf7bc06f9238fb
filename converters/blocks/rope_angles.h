// The angles of RoPE as values of a program: positions times frequencies, in one or several
// dimensions. The angles of the first half of a head are negated, which negates their sines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "converters/blocks/blocks.h"

namespace ferry::converters {

// Makes the literal of the angles of one position, f32 [1, 1, 2 * inverse.size()]. `name` is unique
// among the frequencies of a program.
graph::Literal frequencies_literal(const std::string& name, const std::vector<float>& inverse);

// Returns the angles of positions in several dimensions, i64 [n,T]: f32 [T,1,rotary_dim]. `axes`
// says which of the n turns each pair of dimensions, whose inverse frequencies are `inverse`.
ValueId angles_by_axis(GraphBuilder& b, ValueId positions, const std::string& name,
                       const std::vector<float>& inverse, std::span<const int64_t> axes);

}  // namespace ferry::converters
