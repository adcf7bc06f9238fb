// A block is up to 4 MiB of a new file that an operation makes of the payload of the patch and, for
// differences, of as many old bytes. docs/updates.md describes the forms. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "patch/patch_file.h"

namespace ferry::patch {

struct EncodedBlock {
  OpKind kind = OpKind::kData;
  std::vector<std::byte> stored;
};

// Returns how many elements of `width` bytes differ. The sizes are equal multiples of `width`.
uint64_t count_differences(std::span<const std::byte> made, std::span<const std::byte> old,
                           uint8_t width);

// Returns the shortest form of `made`, at most 4 MiB and a multiple of `width`. `old` has as many
// bytes, or none if there is nothing to compare with; the two are not equal.
EncodedBlock encode_block(std::span<const std::byte> made, std::span<const std::byte> old,
                          uint8_t width);

// Makes the bytes of an operation that is not a copy. `old` are its old bytes, or empty for data.
// `out` has op.bytes bytes. False if the payload is not what the operation says. The numbers of
// `op` have been checked (read_table()).
bool decode_block(const Op& op, std::span<const std::byte> stored, std::span<const std::byte> old,
                  std::span<std::byte> out);

}  // namespace ferry::patch
