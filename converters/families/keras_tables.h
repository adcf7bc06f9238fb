// Rows of KerasArchitecture that several families share.
#pragma once

#include <span>

#include "converters/family_keras.h"

namespace ferry::converters::keras_tables {

using KerasRows = std::span<const KerasRow>;

// The embedding and, in models that are not tied, the head.
extern const KerasRows kKerasEmbeddingAndHead;
// Norms before attention and MLP.
extern const KerasRows kKerasNorms;
// Projections of grouped-query attention.
extern const KerasRows kKerasAttention;
// A gated MLP.
extern const KerasRows kKerasMlp;
// RMS norms of query and key heads.
extern const KerasRows kKerasQwen3Norms;
// Attention and MLP of Gemma 1, 2 and 3.
extern const KerasRows kKerasGemma;
// Norms around attention and MLP. Their paths name other norms in Gemma 1.
extern const KerasRows kKerasGemma2Norms;
// Projections of queries, keys and values whose paths have no underscore.
extern const KerasRows kKerasPlainQkv;
// Router and stacked experts.
extern const KerasRows kKerasExperts;

}  // namespace ferry::converters::keras_tables
