#include "plan/endless.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "converters/blocks/alibi.h"
#include "converters/blocks/shared_layers.h"
#include "converters/config/model_config.h"

namespace ferry::plan {
namespace {

using converters::LayerType;
using converters::ModelConfig;
using converters::ProgramStyle;

constexpr const char* kSinkOption = "attention-sink";
constexpr int64_t kEndlessPrefill = 512;

// Returns what of a model stands against an attention sink; nullopt if nothing does. A token that
// has left the window must leave nothing behind, and RoPE alone may say where tokens are.
std::optional<std::string_view> sink_obstacle(const ModelConfig& config) {
  if (config.is_encoder || config.only_encodes) return "an encoder takes a whole text in one call";
  if (config.has_cross_attention()) return "its tokens attend to the output of an encoder";
  if (config.takes_rows() || config.vision || config.audio) {
    return "images and sounds would leave the window; inputs text leaves them out";
  }
  if (std::ranges::count(config.layer_types, LayerType::kSlidingAttention) > 0) {
    return "it has layers with a window of their own";
  }
  if (std::ranges::any_of(config.layer_types,
                          [](LayerType type) { return type != LayerType::kFullAttention; })) {
    return "it has layers without attention, or with a state beside it";
  }
  if (std::ranges::count(config.rope_layers, false) > 0 || config.number(converters::kAlibi) != 0 ||
      config.relative_bias) {
    return "it has layers without RoPE";
  }
  if (config.rope.type == converters::RopeConfig::Type::kLongRope) {
    return "its RoPE (longrope) depends on the length of the whole sequence";
  }
  if (config.rope.query_growth != 0.0 || config.scalars.query_growth != 0.0) {
    return "its queries grow with the position";
  }
  if (converters::first_shared_layer(config) < config.num_layers) {
    return "it has layers that share keys and values";
  }
  return std::nullopt;
}

template <class... Arguments>
Failure sink_misfit(std::string_view option, fmt::format_string<Arguments...> format,
                    Arguments&&... arguments) {
  return fail_field(ErrorCode::kUsage, std::string(option),
                    fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace

Result<converters::BuildOptions> settle_endless(const ConvertOptions& options,
                                                const ModelConfig& config) {
  const AttentionSink& sink = *options.attention_sink;
  if (const auto why = sink_obstacle(config)) {
    return fail_field(ErrorCode::kUnsupported, kSinkOption,
                      fmt::format(": is not supported for {}: {}", config.model_type, *why));
  }
  if (options.style.value_or(ProgramStyle::kStateful) != ProgramStyle::kStateful) {
    return sink_misfit(kSinkOption, ": is for stateful programs");
  }
  if (sink.slots() > config.max_positions) {
    return sink_misfit(kSinkOption,
                       " {},{}: makes {} positions (SINK + 2 WINDOW), the model has {}", sink.sink,
                       sink.window, sink.slots(), config.max_positions);
  }
  // Bundles record the number that they have.
  if (options.context_length.value_or(sink.slots()) != sink.slots()) {
    return sink_misfit("context-length",
                       " {}: the caches have {} positions with attention-sink {},{}",
                       *options.context_length, sink.slots(), sink.sink, sink.window);
  }
  converters::BuildOptions build;
  build.attention_sink = sink;
  if (options.text_positions.value_or(false)) {
    build.attention_sink->rope_turn = config.max_positions - sink.sink;
  }
  build.context_length = sink.slots();
  build.prefill_length = options.prefill_length.value_or(std::min(sink.window, kEndlessPrefill));
  if (build.prefill_length < 1 || build.prefill_length > sink.window) {
    return sink_misfit("prefill-length", " {}: must be from 1 to {} with attention-sink {},{}",
                       build.prefill_length, sink.window, sink.sink, sink.window);
  }
  build.all_logits = options.all_logits;
  build.kv_cache = options.kv_cache;
  return build;
}

}  // namespace ferry::plan
