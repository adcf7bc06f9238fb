#include "converters/blocks/row_blocks.h"

#include <utility>
#include <vector>

namespace ferry::converters {

RowBlocks cut_rows(GraphBuilder& b, Dim rows, ValueId number, int64_t size, std::string symbol,
                   const std::string& ones) {
  RowBlocks out;
  out.size = size;
  out.rows = rows;
  out.number = number;
  out.all = b.to(b.arange(0, number, rows), DType::kF32);
  if (size > 1) b.windows(std::move(symbol), rows, 1, size);
  const ValueId filter =
      b.literal(DType::kF32, {size, 1, 1},
                graph::literal_of(ones, std::vector<float>(static_cast<size_t>(size), 1.0F)));
  const ValueId numbers = b.view(out.all, {batch(), 1, rows});
  out.firsts = b.conv(numbers, filter, {}, {.step = size});
  const Dims& shape = b.graph()[out.firsts].shape;
  if (shape.size() != 3) return out;  // an earlier misuse
  out.count = shape[2].as(graph::Axis::kNone);
  if (size > 1) b.bind_symbol(out.count.symbol, b.sym_size(out.firsts, 2));
  const ValueId by_block = b.view(b.permute(out.firsts, {0, 2, 1}), {batch(), out.whole()});
  out.whole_number = b.sym_size(by_block, 1);
  return out;
}

ValueId zero_rows(GraphBuilder& b, int64_t count, int64_t width) {
  return b.literal(DType::kF32, {batch(), positions(count), features(width)},
                   graph::zero_literal(static_cast<uint64_t>(count * width) * sizeof(float)));
}

ValueId fill_blocks(GraphBuilder& b, const RowBlocks& blocks, ValueId x, int64_t width) {
  const ValueId padded = blocks.size > 1 ? b.cat({x, zero_rows(b, blocks.size - 1, width)}, 1) : x;
  return b.slice(padded, 1, 0, blocks.whole_number, blocks.whole());
}

}  // namespace ferry::converters
