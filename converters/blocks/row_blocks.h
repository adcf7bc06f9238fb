// RowBlocks cuts rows whose number is not known into blocks of a fixed size, the last of which is
// filled up with zeros.
#pragma once

#include <string>

#include "converters/blocks/blocks.h"

namespace ferry::converters {

struct RowBlocks {
  int64_t size = 0;      // rows of a block
  Dim rows, count;       // `count` blocks, a symbol
  ValueId number;        // of `rows`, an Int
  ValueId whole_number;  // of the rows of all blocks, an Int
  ValueId all;           // the numbers of the rows, f32 [rows]
  ValueId firsts;  // the numbers of the first rows of the blocks, f32 [1,size,count], repeated

  // Returns the dimension of so many elements of each block.
  Dim times(int64_t each) const { return Dim::of(count.symbol, each); }
  // Returns that of the rows of all blocks.
  Dim whole() const { return times(size); }
};

// `rows` and `number` are the rows as a dimension, which is one symbol, and as an Int. The number
// of blocks follows by a division, which a convolution with steps of a block makes; `symbol` names
// it, and `ones` the literal of its filter.
RowBlocks cut_rows(GraphBuilder& b, Dim rows, ValueId number, int64_t size, std::string symbol,
                   const std::string& ones);

// Returns x f32 [1,rows,width] with rows of zeros behind it, f32 [1,whole,width].
ValueId fill_blocks(GraphBuilder& b, const RowBlocks& blocks, ValueId x, int64_t width);

// Returns rows of zeros, f32 [1,count,width].
ValueId zero_rows(GraphBuilder& b, int64_t count, int64_t width);

}  // namespace ferry::converters
