// tile() cuts a file into leaves without gaps and overlaps, from ranges that may overlap, nest or
// leave gaps.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "audit/leaf.h"

namespace ferry::audit {

struct Claim {
  Leaf leaf;      // offset, bytes and what they are
  int level = 0;  // where claims overlap, the bytes belong to the one of the highest level
};

// What the bytes between claims are; offset and bytes are set by tile().
using GapRule = std::function<Leaf(uint64_t offset, uint64_t bytes)>;
// Padding where the gap is shorter than the alignment of what follows it or ends the file within
// 128 bytes, else unaccounted.
GapRule padding_rule(uint64_t file_bytes);

// Ascending leaves whose sizes add up to `file_bytes`. Claims of one level that have the same range
// become one leaf, the others its tied names, and so do claims that are nowhere on top, but for
// those of unused bytes. A claim
// that is cut into several ranges becomes several leaves, numbered by Leaf::part. Claims without
// bytes stay as they are. What leaves the file is ignored.
std::vector<Leaf> tile(uint32_t file, uint64_t file_bytes, std::vector<Claim> claims,
                       const GapRule& gap);

}  // namespace ferry::audit
