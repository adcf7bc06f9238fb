// Row layouts of packed projections: which rows of the source make which target.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "core/strided.h"

namespace ferry::converters {

// Two ways to pack parts into one tensor. The shapes are equal, so a shape does not determine the
// layout.
enum class PackedLayout {
  kConcatenated,  // all of the first part, then all of the second, ...
  kInterleaved,   // group by group: the parts of each key(-value) head, each gate row with its up
                  // row
};

// packed_layout_name() returns "concatenated" or "interleaved"; packed_layout_of() returns nullopt
// for another name.
const char* packed_layout_name(PackedLayout layout);
std::optional<PackedLayout> packed_layout_of(std::string_view name);

// Rows of a tensor in another order, or some of them; StridedPiece::tensor is 0.
using RowOrder = std::vector<StridedPiece>;

// q, k and v in one tensor: [q | k | v], or [q.. k v] for each key-value head.
enum class QkvPart { kQuery, kKey, kValue };
RowOrder fused_qkv_rows(const ModelConfig& config, PackedLayout layout, QkvPart part);
int64_t fused_qkv_row_count(const ModelConfig& config);

// Gate and up in one tensor of 2 * intermediate_size rows: [gate | up], or row by row in turn.
enum class GateUpPart { kGate, kUp };
RowOrder gate_up_rows(const ModelConfig& config, PackedLayout layout, GateUpPart part);

// CodeGen groups the rows of qkv_proj in blocks of heads, one for each core that it was trained on.
// A block is [q | v | k]. ModelConfig::numbers holds the number of blocks under this name.
inline constexpr const char* kQkvBlocks = "qkv_blocks";
RowOrder codegen_qkv_rows(const ModelConfig& config, QkvPart part);

// Returns the rows of heads whose RoPE rotates neighbouring dimensions (2j, 2j + 1), in the order
// that makes them pairs (j, j + rotary_dim / 2), which all blocks rotate. An equal order in q and k
// changes no score. Dimensions from `rotary_dim` on stay where they are.
RowOrder pairs_to_halves(int64_t heads, int64_t head_dim, int64_t rotary_dim);

// Qwen3-Next stores in_proj_qkvz grouped per key head as q, k, v.., z.. and in_proj_ba as b.., a..
// (transformers, Qwen3NextGatedDeltaNet.fix_query_key_value_ordering). A split along dimension 0
// has the right shapes and the wrong rows. Serving stacks that fuse the separate projections of
// Qwen3.5 concatenate them: [q | k | v | z] and [b | a].
enum class QkvzPart { kQuery, kKey, kValue, kGate };  // gate is z
enum class BaPart { kBeta, kAlpha };
RowOrder qkvz_rows(const LinearAttentionConfig& config, PackedLayout layout, QkvzPart part);
// Returns the rows of the separate in_proj_qkv: q, then k, then v.
RowOrder qkv_rows(const LinearAttentionConfig& config, PackedLayout layout);
RowOrder ba_rows(const LinearAttentionConfig& config, PackedLayout layout, BaPart part);
// Returns the number of rows that the packed tensors must have.
int64_t qkvz_row_count(const LinearAttentionConfig& config);
int64_t ba_row_count(const LinearAttentionConfig& config);

}  // namespace ferry::converters
