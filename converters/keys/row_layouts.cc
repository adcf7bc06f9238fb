#include "converters/keys/row_layouts.h"

namespace ferry::converters {
namespace {

// Appends a run, merged with the one before it where they touch.
void append(std::vector<graph::RowRun>& runs, int64_t begin, int64_t count) {
  if (!runs.empty() && runs.back().begin + runs.back().count == begin) {
    runs.back().count += count;
  } else {
    runs.push_back({.entry = 0, .begin = begin, .count = count});
  }
}

// Part `part` of a tensor that packs parts of `sizes` rows per group, of `groups` groups.
std::vector<graph::RowRun> packed_rows(int64_t groups, const std::vector<int64_t>& sizes,
                                       size_t part, PackedLayout layout) {
  int64_t before = 0, stride = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i < part) before += sizes[i];
    stride += sizes[i];
  }
  if (layout == PackedLayout::kConcatenated) {
    return rows_range(groups * before, groups * sizes[part]);
  }
  std::vector<graph::RowRun> runs;
  for (int64_t g = 0; g < groups; ++g) append(runs, g * stride + before, sizes[part]);
  return runs;
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

std::vector<graph::RowRun> rows_range(int64_t begin, int64_t count) {
  return {{.entry = 0, .begin = begin, .count = count}};
}

std::vector<graph::RowRun> fused_qkv_rows(const ModelConfig& config, PackedLayout layout,
                                          QkvPart part) {
  const int64_t queries = config.num_heads / config.num_kv_heads * config.head_dim;
  return packed_rows(config.num_kv_heads, {queries, config.head_dim, config.head_dim},
                     static_cast<size_t>(part), layout);
}

int64_t fused_qkv_row_count(const ModelConfig& config) {
  return config.q_size() + 2 * config.kv_size();
}

std::vector<graph::RowRun> gate_up_rows(const ModelConfig& config, PackedLayout layout,
                                        GateUpPart part) {
  return packed_rows(config.intermediate_size, {1, 1}, static_cast<size_t>(part), layout);
}

std::vector<graph::RowRun> codegen_qkv_rows(const ModelConfig& config, QkvPart part) {
  const int64_t blocks = config.number(kQkvBlocks);
  const int64_t rows = config.q_size() / blocks;
  const size_t place = part == QkvPart::kQuery ? 0 : part == QkvPart::kValue ? 1 : 2;
  return packed_rows(blocks, {rows, rows, rows}, place, PackedLayout::kInterleaved);
}

std::vector<graph::RowRun> rope_half_rows(const ModelConfig& config, int64_t heads) {
  const int64_t rotary = config.rotary_dim();
  std::vector<graph::RowRun> runs;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t base = head * config.head_dim;
    for (int64_t i = 0; i < rotary; i += 2) append(runs, base + i, 1);
    for (int64_t i = 1; i < rotary; i += 2) append(runs, base + i, 1);
    if (rotary < config.head_dim) append(runs, base + rotary, config.head_dim - rotary);
  }
  return runs;
}

std::vector<graph::RowRun> select_rows(const std::vector<graph::RowRun>& rows,
                                       const std::vector<graph::RowRun>& order) {
  std::vector<int64_t> flat;
  for (const graph::RowRun& run : rows) {
    for (int64_t i = 0; i < run.count; ++i) flat.push_back(run.begin + i);
  }
  std::vector<graph::RowRun> selected;
  for (const graph::RowRun& run : order) {
    for (int64_t i = 0; i < run.count; ++i) {
      append(selected, flat[static_cast<size_t>(run.begin + i)], 1);
    }
  }
  return selected;
}

std::vector<graph::RowRun> qkvz_rows(const LinearAttentionConfig& config, PackedLayout layout,
                                     QkvzPart part) {
  const int64_t dk = config.key_dim;
  const int64_t values = config.groups() * config.value_dim;  // rows of v, and of z, in a group
  return packed_rows(config.key_heads, {dk, dk, values, values}, static_cast<size_t>(part), layout);
}

std::vector<graph::RowRun> qkv_rows(const LinearAttentionConfig& config, PackedLayout layout) {
  std::vector<graph::RowRun> all;
  for (QkvzPart part : {QkvzPart::kQuery, QkvzPart::kKey, QkvzPart::kValue}) {
    for (const graph::RowRun& run : qkvz_rows(config, layout, part))
      append(all, run.begin, run.count);
  }
  return all;
}

std::vector<graph::RowRun> ba_rows(const LinearAttentionConfig& config, PackedLayout layout,
                                   BaPart part) {
  const int64_t r = config.groups();
  return packed_rows(config.key_heads, {r, r}, static_cast<size_t>(part), layout);
}

int64_t qkvz_row_count(const LinearAttentionConfig& config) {
  return 2 * config.key_size() + 2 * config.value_size();
}

int64_t ba_row_count(const LinearAttentionConfig& config) { return 2 * config.value_heads; }

}  // namespace ferry::converters
