// Rows of KerasArchitecture that several families share.
#pragma once

#include <span>

#include "converters/family_keras.h"

namespace ferry::converters::keras_tables {

using KerasRows = std::span<const KerasRow>;

extern const KerasRows
    kKerasEmbeddingAndHead;          // The embedding and, in models that are not tied, the head.
extern const KerasRows kKerasNorms;  // Norms before attention and MLP.
extern const KerasRows kKerasAttention;   // Projections of grouped-query attention.
extern const KerasRows kKerasMlp;         // A gated MLP.
extern const KerasRows kKerasQwen3Norms;  // RMS norms of query and key heads.
extern const KerasRows kKerasGemma;       // Attention and MLP of Gemma 1, 2 and 3.
extern const KerasRows
    kKerasGemma2Norms;  // Norms around attention and MLP. Their paths name other norms in Gemma 1.
extern const KerasRows
    kKerasPlainQkv;  // Projections of queries, keys and values whose paths have no underscore.
extern const KerasRows kKerasExperts;  // Router and stacked experts.

}  // namespace ferry::converters::keras_tables
