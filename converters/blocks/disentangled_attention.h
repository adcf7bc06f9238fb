// Disentangled attention of an encoder (DeBERTa): to the score of two contents are added those of a
// content and the vector of a distance, q_i k(i - j) and k_j q(i - j).
// Source: transformers, models/deberta_v2/modeling_deberta_v2.py; arXiv 2006.03654.
#pragma once

#include "converters/blocks/decoder_context.h"

namespace ferry::converters {

// Members of ModelConfig::numbers. Distances have 2 * kRelativeSpan rows of
// relative_embeddings.weight [rows, hidden_size].
inline constexpr const char* kRelativeSpan = "relative_span";
// The rows that distances share where they are far: half of them for near ones; 0: every distance
// has a row of its own.
inline constexpr const char* kPositionBuckets = "position_buckets";
inline constexpr const char* kFarthest = "max_relative_positions";
// 1 where the first, or the second, of the two scores is added.
inline constexpr const char* kContentToPosition = "c2p";
inline constexpr const char* kPositionToContent = "p2c";
// 1 where rows are projected by wq and wk; else by the layer's wq_of_distance and wk_of_distance.
inline constexpr const char* kSharedProjections = "share_att_key";
// 1 where the layer norm relative_norm is over the rows.
inline constexpr const char* kRelativeNorm = "relative_norm";

// Returns the row of relative_embeddings for a key that is `distance` tokens before its query.
int64_t relative_row(const ModelConfig& config, int64_t distance);

// The values that all layers of a program share.
struct Distances {
  ValueId ids = {};   // the row of each query and key: i64 [T,T]
  ValueId rows = {};  // f32 [1,rows,hidden_size]
};
Distances make_distances(GraphBuilder& b, const DecoderContext& c);

// Builds attention of layer `layer`: x [1,T,hidden_size] -> the same. All projections have biases.
ValueId disentangled_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                               const Distances& distances);

}  // namespace ferry::converters
