// Row layouts of packed projections: which source rows make which target, as bijections over rows.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "graph/tensor_expr.h"

namespace ferry::converters {

// Two ways to pack what belongs together. The shapes are equal, so that a shape cannot tell which.
enum class PackedLayout {
  kConcatenated,  // all of the first part, then all of the second, ...
  kInterleaved,   // group by group: of each key(-value) head its parts, of each gate row its up row
};

// "concatenated", "interleaved"; and the layout of a name, or nullopt.
const char* packed_layout_name(PackedLayout layout);
std::optional<PackedLayout> packed_layout_of(std::string_view name);

// Rows [begin, begin + count) as one run.
std::vector<graph::RowRun> rows_range(int64_t begin, int64_t count);

// q, k and v in one tensor: [q | k | v], or [q.. k v] for each key-value head.
enum class QkvPart { kQuery, kKey, kValue };
std::vector<graph::RowRun> fused_qkv_rows(const ModelConfig& config, PackedLayout layout,
                                          QkvPart part);
int64_t fused_qkv_row_count(const ModelConfig& config);

// Gate and up in one tensor of 2 * intermediate_size rows: [gate | up], or row by row in turn.
enum class GateUpPart { kGate, kUp };
std::vector<graph::RowRun> gate_up_rows(const ModelConfig& config, PackedLayout layout,
                                        GateUpPart part);

// CodeGen groups the rows of qkv_proj in blocks of heads, one for each core that it was trained on.
// A block is [q | v | k]. ModelConfig::numbers holds the number of blocks under this name.
inline constexpr const char* kQkvBlocks = "qkv_blocks";
std::vector<graph::RowRun> codegen_qkv_rows(const ModelConfig& config, QkvPart part);

// Families that turn neighbouring dimensions (2j, 2j + 1) of a head: the order that makes them
// pairs (j, j + rotary_dim / 2), as all blocks turn them. In q and k alike it changes no score.
std::vector<graph::RowRun> rope_half_rows(const ModelConfig& config, int64_t heads);
// Rows `order` of the rows `rows`.
std::vector<graph::RowRun> select_rows(const std::vector<graph::RowRun>& rows,
                                       const std::vector<graph::RowRun>& order);

// Qwen3-Next stores in_proj_qkvz grouped per key head as q, k, v.., z.. and in_proj_ba as b.., a..
// (transformers, Qwen3NextGatedDeltaNet.fix_query_key_value_ordering). A split along dimension 0
// has the right shapes and the wrong rows. Serving stacks that fuse the separate projections of
// Qwen3.5 concatenate them: [q | k | v | z] and [b | a].
enum class QkvzPart { kQuery, kKey, kValue, kGate };  // gate is z
enum class BaPart { kBeta, kAlpha };
std::vector<graph::RowRun> qkvz_rows(const LinearAttentionConfig& config, PackedLayout layout,
                                     QkvzPart part);
// q, then k, then v: the rows of the separate in_proj_qkv.
std::vector<graph::RowRun> qkv_rows(const LinearAttentionConfig& config, PackedLayout layout);
std::vector<graph::RowRun> ba_rows(const LinearAttentionConfig& config, PackedLayout layout,
                                   BaPart part);
// Rows that the packed tensors must have.
int64_t qkvz_row_count(const LinearAttentionConfig& config);
int64_t ba_row_count(const LinearAttentionConfig& config);

}  // namespace ferry::converters
