// The frame of a decoder: inputs, embedding, layers, final norm and head, with the probes that
// reference files name.
#pragma once

#include <functional>

#include "converters/attention.h"
#include "converters/decoder_context.h"

namespace ferry {

// The mixer of a layer: normed x [1,T,hidden_size] -> what is added to the residual stream.
using Mixer =
    std::function<ValueId(GraphBuilder&, const DecoderContext&, ValueId x, int64_t layer)>;

// Pre-norm: per layer x += mixer(norm x), x += mlp(norm x).
Result<Graph> build_decoder(const ModelConfig& config, const BuildOptions& options,
                            const Mixer& mixer);

// The same with attention in every layer.
Result<Graph> build_attention_decoder(const ModelConfig& config, const BuildOptions& options,
                                      const AttentionStyle& style);

}  // namespace ferry
