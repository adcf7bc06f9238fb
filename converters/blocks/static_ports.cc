#include "converters/blocks/static_ports.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/shared_layers.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

std::string layer_port(std::string_view stem, int64_t layer) {
  return fmt::format("{}{}", stem, layer);
}

}  // namespace

bool has_cache(const ModelConfig& config, int64_t layer) {
  return is_attention(config.layer_types[static_cast<size_t>(layer)]) &&
         layer < first_shared_layer(config);
}

bool has_window(const ModelConfig& config, const BuildOptions& options) {
  const bool apart = config.vision && config.vision->two_way_in_windows;
  return config.sliding_window && (apart || *config.sliding_window < options.context_length) &&
         std::ranges::count(config.layer_types, LayerType::kSlidingAttention) > 0;
}

Encoding mask_encoding(DType dtype) {
  if (!is_encoded(dtype)) return {};
  const int64_t greatest = largest_code(dtype);
  return {-static_cast<double>(kMaskedScore) / static_cast<double>(greatest), greatest};
}

ValueId decoder_input(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                      DType ids, Dim count) {
  if (!config.takes_rows()) return b.input(std::string(kTokensPort), ids, {batch(), count});
  return b.input(std::string(kEmbeddingsPort), DType::kF32,
                 {batch(), count, features(row_width(config, options))});
}

ValueId StaticPorts::input(GraphBuilder& b, std::string name, const Port& port, Dims shape) {
  const ValueId value = b.input(std::move(name), port.dtype, std::move(shape));
  if (is_encoded(port.dtype)) b.set_encoding(value, port.encoding);
  return value;
}

ValueId StaticPorts::stored(GraphBuilder& b, ValueId value, const Port& port) {
  if (is_encoded(port.dtype)) {
    const ValueId codes =
        b.quantize(value, port.encoding.scale, port.encoding.zero_point, port.dtype);
    b.set_encoding(codes, port.encoding);
    return codes;
  }
  return port.dtype == DType::kF32 ? value : b.to(value, port.dtype);
}

ValueId StaticPorts::real(GraphBuilder& b, ValueId value, const Port& port) {
  if (is_encoded(port.dtype)) {
    return b.dequantize(value, port.encoding.scale, port.encoding.zero_point);
  }
  return port.dtype == DType::kF32 ? value : b.to(value, DType::kF32);
}

StaticPorts::StaticPorts(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                         int64_t tokens)
    : logits_{options.ports.logits, options.ports.logits_encoding} {
  const PortTypes& types = options.ports;
  const Dims call = {batch(), positions(tokens)};
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (!has_cache(config, i)) continue;
    const size_t index = layers_.size();
    Layer& layer = layers_.emplace_back(Layer{i, {types.cache}, {types.cache}});
    if (!is_encoded(types.cache)) continue;
    layer.key_port.encoding = types.keys[index];
    layer.value_port.encoding = types.values[index];
  }
  input_ = decoder_input(b, config, options, DType::kI32, positions(tokens));
  add_masks(b, config, options, tokens);
  input_pos_ = b.input(std::string(kInputPosPort), DType::kI32, call);
  if (takes_layer_tokens(config)) {
    layer_tokens_ = b.input(std::string(kLayerTokensPort), DType::kI32, call);
  }
  const Dim past = positions(options.context_length - tokens);
  for (Layer& layer : layers_) {
    const HeadSizes sizes = config.heads_of(layer.number);
    layer.past_keys = input(b, layer_port(kKCachePort, layer.number), layer.key_port,
                            {batch(), heads(sizes.kv_heads), head_dim(sizes.dim), past});
  }
  for (Layer& layer : layers_) {
    const HeadSizes sizes = config.heads_of(layer.number);
    layer.past_values = input(b, layer_port(kVCachePort, layer.number), layer.value_port,
                              {batch(), heads(sizes.kv_heads), past, head_dim(sizes.dim)});
  }
  if (attention_mask_.valid()) attention_mask_ = real(b, attention_mask_, mask_);
  if (window_mask_.valid()) window_mask_ = real(b, window_mask_, mask_);
}

void StaticPorts::add_masks(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                            int64_t tokens) {
  if (layers_.empty()) return;
  mask_ = {options.ports.mask, mask_encoding(options.ports.mask)};
  // One mask serves all heads, so its first two dimensions are 1.
  const Dims shape = {1, 1, positions(tokens), positions(options.context_length)};
  attention_mask_ = input(b, std::string(kAttentionMaskPort), mask_, shape);
  if (!has_window(config, options)) return;
  window_mask_ = input(b, std::string(kWindowMaskPort), mask_, shape);
}

std::pair<ValueId, ValueId> StaticPorts::extend(GraphBuilder& b, int64_t layer, ValueId keys,
                                                ValueId values) {
  Layer& at = *std::ranges::find(layers_, layer, &Layer::number);
  at.new_keys = stored(b, b.permute(keys, {0, 2, 3, 1}), at.key_port);
  at.new_values = stored(b, b.permute(values, {0, 2, 1, 3}), at.value_port);
  // A call sees its own tokens rounded, as later calls will see them. So the tokens that follow do
  // not depend on how a prompt was divided into calls.
  const ValueId new_keys = real(b, at.new_keys, at.key_port);
  const ValueId new_values = real(b, at.new_values, at.value_port);
  const ValueId past_keys = real(b, at.past_keys, at.key_port);
  const ValueId past_values = real(b, at.past_values, at.value_port);
  const ValueId all_keys = b.cat({past_keys, new_keys}, 3);
  const ValueId all_values = b.cat({past_values, new_values}, 2);
  return {all_keys, all_values};
}

void StaticPorts::add_state(std::string name, ValueId after) {
  states_.emplace_back(std::move(name), after);
}

void StaticPorts::finish(GraphBuilder& b, ValueId logits) {
  b.output(stored(b, logits, logits_), std::string(kLogitsPort));
  for (const Layer& layer : layers_) b.output(layer.new_keys, layer_port(kNewKPort, layer.number));
  for (const Layer& layer : layers_) {
    b.output(layer.new_values, layer_port(kNewVPort, layer.number));
  }
  for (const auto& [name, after] : states_) b.output(after, name);
}

}  // namespace ferry::converters
