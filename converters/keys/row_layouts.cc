#include "converters/keys/row_layouts.h"

#include <utility>

namespace ferry::converters {
namespace {

// Returns the rows of part `part` in a tensor that has `groups` groups of parts of `sizes` rows.
RowOrder packed_rows(int64_t groups, const std::vector<int64_t>& sizes, size_t part,
                     PackedLayout layout) {
  int64_t before = 0, stride = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i < part) before += sizes[i];
    stride += sizes[i];
  }
  if (layout == PackedLayout::kConcatenated) {
    return {run_piece(0, groups * before, groups * sizes[part])};
  }
  StridedPiece piece{.offset = before};
  add_axis(piece, {groups, stride});
  add_axis(piece, {sizes[part], 1});
  return {std::move(piece)};
}

}  // namespace

const char* packed_layout_name(PackedLayout layout) {
  return layout == PackedLayout::kConcatenated ? "concatenated" : "interleaved";
}

std::optional<PackedLayout> packed_layout_of(std::string_view name) {
  for (PackedLayout layout : {PackedLayout::kConcatenated, PackedLayout::kInterleaved}) {
    if (name == packed_layout_name(layout)) return layout;
  }
  return std::nullopt;
}

RowOrder fused_qkv_rows(const ModelConfig& config, PackedLayout layout, QkvPart part) {
  const int64_t queries = config.num_heads / config.num_kv_heads * config.head_dim;
  return packed_rows(config.num_kv_heads, {queries, config.head_dim, config.head_dim},
                     static_cast<size_t>(part), layout);
}

int64_t fused_qkv_row_count(const ModelConfig& config) {
  return config.q_size() + 2 * config.kv_size();
}

RowOrder gate_up_rows(const ModelConfig& config, PackedLayout layout, GateUpPart part) {
  return packed_rows(config.intermediate_size, {1, 1}, static_cast<size_t>(part), layout);
}

RowOrder codegen_qkv_rows(const ModelConfig& config, QkvPart part) {
  const int64_t blocks = config.number(kQkvBlocks);
  const int64_t rows = config.q_size() / blocks;
  const size_t place = part == QkvPart::kQuery ? 0 : part == QkvPart::kValue ? 1 : 2;
  return packed_rows(blocks, {rows, rows, rows}, place, PackedLayout::kInterleaved);
}

RowOrder pairs_to_halves(int64_t heads, int64_t head_dim, int64_t rotary_dim) {
  RowOrder rows;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t base = head * head_dim;
    rows.push_back({.offset = base, .axes = {{2, 1}, {rotary_dim / 2, 2}}});
    rows.push_back(run_piece(0, base + rotary_dim, head_dim - rotary_dim));
  }
  return folded(rows);
}

RowOrder qkvz_rows(const LinearAttentionConfig& config, PackedLayout layout, QkvzPart part) {
  const int64_t dk = config.key_dim;
  const int64_t values = config.groups() * config.value_dim;  // rows of v, and of z, in a group
  return packed_rows(config.key_heads, {dk, dk, values, values}, static_cast<size_t>(part), layout);
}

RowOrder qkv_rows(const LinearAttentionConfig& config, PackedLayout layout) {
  RowOrder all;
  for (QkvzPart part : {QkvzPart::kQuery, QkvzPart::kKey, QkvzPart::kValue}) {
    for (StridedPiece& piece : qkvz_rows(config, layout, part)) all.push_back(std::move(piece));
  }
  return folded(all);
}

RowOrder ba_rows(const LinearAttentionConfig& config, PackedLayout layout, BaPart part) {
  const int64_t r = config.groups();
  return packed_rows(config.key_heads, {r, r}, static_cast<size_t>(part), layout);
}

int64_t qkvz_row_count(const LinearAttentionConfig& config) {
  return 2 * config.key_size() + 2 * config.value_size();
}

int64_t ba_row_count(const LinearAttentionConfig& config) { return 2 * config.value_heads; }

}  // namespace ferry::converters
