#include "converters/blocks/shared_layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/blocks.h"

namespace ferry::converters {
namespace {

class SharedLayerAttention {
 public:
  SharedLayerAttention(GraphBuilder& b, const DecoderContext& c, int64_t layer, HeldByType& held)
      : b_(b), c_(c), g_(c.config), layer_(layer), held_(held) {}

  ValueId run(ValueId x);

 private:
  ValueId norm(ValueId x, const char* name) {
    return rms_norm(b_, x, prefix_ + name + ".weight", g_.rms_norm_eps);
  }
  // Projects x to [1,T,count,head_dim].
  ValueId head_rows(ValueId x, const char* name, int64_t count) {
    const ValueId y =
        projection(b_, x, prefix_ + name, g_.hidden_size, count * heads_.dim, g_.attention_bias);
    return b_.view(y, {batch(), c_.tokens, heads(count), head_dim(heads_.dim)});
  }
  ValueId joined(ValueId mixed) {
    const int64_t width = g_.num_heads * heads_.dim;
    const ValueId row = b_.view(mixed, {batch(), c_.tokens, features(width)});
    return projection(b_, row, prefix_ + ".wo", width, g_.hidden_size, g_.attention_bias);
  }
  // Whether later layers attend to the keys and values of this one.
  bool is_last_of_kind() const;

  GraphBuilder& b_;
  const DecoderContext& c_;
  const ModelConfig& g_;
  const int64_t layer_;
  HeldByType& held_;
  const LayerType type_ = g_.layer_types[static_cast<size_t>(layer_)];
  const HeadSizes heads_ = g_.heads_of(type_);
  const std::string prefix_ = layer_name(layer_, "attention");
};

bool SharedLayerAttention::is_last_of_kind() const {
  const int64_t first = first_shared_layer(g_);
  if (first == g_.num_layers) return false;
  const auto begin = g_.layer_types.begin();
  return std::find(begin + layer_ + 1, begin + first, type_) == begin + first;
}

ValueId SharedLayerAttention::run(ValueId x) {
  const AttentionKind& kind = c_.kind_of(layer_);
  ValueId q = norm(head_rows(x, ".wq", g_.num_heads), ".q_norm");
  q = rope(b_, kind.query_rope, q);
  if (layer_ < first_shared_layer(g_)) {
    const ValueId rows = head_rows(x, ".wk", heads_.kv_heads);
    const ValueId k = rope(b_, kind.rope, norm(rows, ".k_norm"));
    const ValueId own = has_value_matrix(g_, layer_) ? head_rows(x, ".wv", heads_.kv_heads) : rows;
    const ValueId v = bare_rms_norm(b_, own, g_.rms_norm_eps);
    if (!is_last_of_kind()) return joined(attend(b_, c_, layer_, q, k, v));
    held_[type_] = hold_rows(b_, c_, layer_, k, v);
  }
  return joined(attend_held(b_, c_, layer_, q, held_.at(type_)));
}

}  // namespace

int64_t first_shared_layer(const ModelConfig& config) {
  // If all layers would share, none does, as in Gemma 3n.
  const int64_t first = config.num_layers - config.number(kSharedLayers);
  return first > 0 ? first : config.num_layers;
}

Status check_shared_layers(const ModelConfig& config) {
  const auto first = config.layer_types.begin() + first_shared_layer(config);
  for (auto type = first; type != config.layer_types.end(); ++type) {
    if (std::find(config.layer_types.begin(), first, *type) != first) continue;
    return bad_input(
        fmt::format("config: 'num_kv_shared_layers' is {}: no earlier layer has the "
                    "kind of layer {}",
                    config.number(kSharedLayers), type - config.layer_types.begin()));
  }
  return {};
}

bool has_value_matrix(const ModelConfig& config, int64_t layer) {
  return config.number(kKeysAreValues) == 0 ||
         config.layer_types[static_cast<size_t>(layer)] != LayerType::kFullAttention;
}

ValueId shared_layer_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                               HeldByType& held) {
  return SharedLayerAttention(b, c, layer, held).run(x);
}

}  // namespace ferry::converters
