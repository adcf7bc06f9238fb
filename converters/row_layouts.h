// Row layouts of packed projections: which source rows make which target, as bijections over rows.
#pragma once

#include <vector>

#include "converters/model_config.h"
#include "graph/tensor_expr.h"

namespace ferry {

// Rows [begin, begin + count) as one run.
std::vector<RowRun> rows_range(int64_t begin, int64_t count);

// Qwen3-Next stores in_proj_qkvz grouped per key head as q, k, v.., z.. and in_proj_ba as b.., a..
// (transformers, Qwen3NextGatedDeltaNet.fix_query_key_value_ordering). A split along dimension 0 has
// the right shapes and the wrong rows.
enum class QkvzPart { kQuery, kKey, kValue, kGate };  // gate is z
enum class BaPart { kBeta, kAlpha };
std::vector<RowRun> qkvz_rows(const LinearAttentionConfig& config, QkvzPart part);
// q, then k, then v: the rows of the separate in_proj_qkv.
std::vector<RowRun> qkv_rows(const LinearAttentionConfig& config);
std::vector<RowRun> ba_rows(const LinearAttentionConfig& config, BaPart part);
// Rows that the packed tensors must have.
int64_t qkvz_row_count(const LinearAttentionConfig& config);
int64_t ba_row_count(const LinearAttentionConfig& config);

}  // namespace ferry
