#include "converters/blocks/static_ports.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/axes.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

std::string layer_port(std::string_view stem, int64_t layer) {
  return fmt::format("{}{}", stem, layer);
}

}  // namespace

bool has_window(const ModelConfig& config, const BuildOptions& options) {
  return config.sliding_window && *config.sliding_window < options.context_length &&
         std::ranges::count(config.layer_types, LayerType::kSlidingAttention) > 0;
}

StaticPorts::StaticPorts(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                         int64_t tokens) {
  const Dims call = {batch(), positions(tokens)};
  // One mask serves all heads, so its first two dimensions count nothing.
  const Dims mask = {1, 1, positions(tokens), positions(options.context_length)};
  const Dim past = positions(options.context_length - tokens);
  const Dim kv = heads(config.num_kv_heads);
  const Dim dim = head_dim(config.head_dim);
  tokens_ = b.input(std::string(kTokensPort), DType::kI32, call);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (is_attention(config.layer_types[static_cast<size_t>(i)])) layers_.push_back({i, {}, {}});
  }
  if (!layers_.empty()) {
    attention_mask_ = b.input(std::string(kAttentionMaskPort), DType::kF32, mask);
    if (has_window(config, options)) {
      window_mask_ = b.input(std::string(kWindowMaskPort), DType::kF32, mask);
    }
  }
  input_pos_ = b.input(std::string(kInputPosPort), DType::kI32, call);
  for (Layer& layer : layers_) {
    layer.past_keys =
        b.input(layer_port(kKCachePort, layer.number), DType::kF32, {batch(), kv, dim, past});
  }
  for (Layer& layer : layers_) {
    layer.past_values =
        b.input(layer_port(kVCachePort, layer.number), DType::kF32, {batch(), kv, past, dim});
  }
}

std::pair<ValueId, ValueId> StaticPorts::extend(GraphBuilder& b, int64_t layer, ValueId keys,
                                                ValueId values) {
  Layer& at = *std::ranges::find(layers_, layer, &Layer::number);
  at.new_keys = b.permute(keys, {0, 2, 3, 1});
  at.new_values = b.permute(values, {0, 2, 1, 3});
  const ValueId all_keys = b.cat({at.past_keys, at.new_keys}, 3);
  const ValueId all_values = b.cat({at.past_values, at.new_values}, 2);
  return {all_keys, all_values};
}

void StaticPorts::add_state(std::string name, ValueId after) {
  states_.emplace_back(std::move(name), after);
}

void StaticPorts::finish(GraphBuilder& b, ValueId logits) {
  b.output(logits, std::string(kLogitsPort));
  for (const Layer& layer : layers_) b.output(layer.new_keys, layer_port(kNewKPort, layer.number));
  for (const Layer& layer : layers_) {
    b.output(layer.new_values, layer_port(kNewVPort, layer.number));
  }
  for (const auto& [name, after] : states_) b.output(after, name);
}

}  // namespace ferry::converters
