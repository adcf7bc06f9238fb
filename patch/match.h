// Finds how a block of a new file is made of old bytes. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "patch/old_index.h"
#include "patch/table.h"

namespace ferry::patch {

// A range of a new file, at most kMaxBlockBytes. Blocks do not depend on each other, so that any
// number of threads gives the same patch.
struct Block {
  uint64_t offset = 0, bytes = 0;  // bytes is a multiple of `width`
  uint8_t width = 1;
  std::vector<OldPlace> places = {};  // where its bytes, or similar ones, may be
};

struct Piece {
  Op op;  // old_file is an index into the files of the old folder
  std::vector<std::byte> stored;
};

// Cuts a new file into blocks: tensors by themselves, and what is between them.
std::vector<Block> blocks_of(const Folder& folder, uint32_t file, const OldIndex& old);

// Returns the pieces of a block in their order.
Result<std::vector<Piece>> match_block(const InputFile& file, const Block& block,
                                       const OldIndex& old);

}  // namespace ferry::patch
