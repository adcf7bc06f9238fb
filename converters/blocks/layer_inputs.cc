#include "converters/blocks/layer_inputs.h"

#include <cmath>
#include <numbers>

namespace ferry::converters {
namespace {

// Returns the ids in the table of the layers' inputs. Tokens beyond the table, which stand for
// sounds and images, have the row of token 0.
ValueId layer_table_ids(GraphBuilder& b, const DecoderContext& c) {
  const ModelConfig& config = c.config;
  const ValueId tokens =
      c.layer_tokens.valid() ? padded_ids(b, config, c.layer_tokens) : b.graph().inputs.front();
  const int64_t rows = config.number(kLayerVocab);
  if (rows >= config.vocab_size) return tokens;
  const ValueId zero = b.sub(tokens, tokens);
  return b.where(b.lt(tokens, rows), tokens, zero);
}

}  // namespace

bool takes_layer_tokens(const ModelConfig& config) {
  return config.takes_rows() && config.number(kLayerInputSize) > 0;
}

ValueId padded_ids(GraphBuilder& b, const ModelConfig& config, ValueId ids) {
  for (const int64_t id : config.padded_ids) {
    if (id >= config.vocab_size) continue;
    const ValueId is_placeholder = b.eq(ids, id);
    ids = b.where(is_placeholder, int_scalar(b, config.pad_id), ids);
  }
  return ids;
}

ValueId layer_inputs(GraphBuilder& b, const DecoderContext& c, ValueId x) {
  const ModelConfig& g = c.config;
  const int64_t size = g.number(kLayerInputSize);
  const int64_t all = g.num_layers * size;
  const Dims by_layer = {batch(), c.tokens, g.num_layers, features(size)};
  const ValueId projected =
      projection(b, x, "layer_inputs.projection", g.hidden_size, features(all), /*bias=*/false);
  const double scale = 1.0 / std::sqrt(static_cast<double>(g.hidden_size));
  const ValueId normed = rms_norm(b, b.view(b.mul(projected, scale), by_layer),
                                  "layer_inputs.norm.weight", g.rms_norm_eps);
  if (g.number(kLayerVocab) == 0) return normed;
  const ValueId table =
      b.weight("layer_inputs.embeddings.weight", {features(g.number(kLayerVocab)), features(all)});
  const ValueId looked_up = b.embedding(table, layer_table_ids(b, c));
  const ValueId stored = b.view(b.mul(looked_up, std::sqrt(static_cast<double>(size))), by_layer);
  const ValueId inputs = b.mul(b.add(normed, stored), 1.0 / std::numbers::sqrt2);
  b.name(inputs, "layer_inputs");
  return inputs;
}

ValueId layer_input_addend(GraphBuilder& b, const DecoderContext& c, ValueId inputs, ValueId x,
                           int64_t layer) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "layer_input.");
  const int64_t size = g.number(kLayerInputSize);
  const ValueId gate =
      activate(b, g.activation,
               projection(b, x, prefix + "gate", g.hidden_size, features(size), /*bias=*/false));
  const ValueId own = b.select(inputs, 2, layer);
  const ValueId mixed = b.mul(gate, own);
  const ValueId wide =
      projection(b, mixed, prefix + "projection", size, features(g.hidden_size), /*bias=*/false);
  return rms_norm(b, wide, prefix + "norm.weight", g.rms_norm_eps);
}

}  // namespace ferry::converters
