#include "converters/blocks/decoder.h"

#include <fmt/format.h>

#include <utility>

#include "converters/blocks/audio_front.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/classifier.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/sentence.h"
#include "converters/blocks/static_ports.h"
#include "converters/blocks/token_ranges.h"
#include "converters/keys/standard_keys.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

ValueId scaled(GraphBuilder& b, ValueId x, double factor) {
  return factor == 1.0 ? x : b.mul(x, factor);
}

// Returns x plus the output of a block. `before` and `after` are the names of its norms.
ValueId add_block(GraphBuilder& b, const ModelConfig& config, NormStyle norms, int64_t layer,
                  const char* before, const char* after, ValueId x,
                  const std::function<ValueId(ValueId)>& block) {
  const auto norm = [&](ValueId value, const char* name) {
    return rms_norm(b, value, layer_name(layer, name) + ".weight", config.rms_norm_eps);
  };
  ValueId y = block(norms.before ? norm(x, before) : x);
  if (norms.after) y = norm(y, after);
  return b.add(x, scaled(b, y, config.scalars.residual));
}

// Returns what the first layer takes of embeddings that are an input.
ValueId take_rows(GraphBuilder& b, const ModelConfig& config, ValueId rows) {
  return config.scalars.multiplies_rows() ? b.mul(rows, config.scalars.embedding) : rows;
}

int64_t outer_width(const ModelConfig& config, const DecoderParts& parts) {
  return parts.embedding_size > 0 ? parts.embedding_size : config.hidden_size;
}

// Returns the width of what the final norm gives.
int64_t state_width(const ModelConfig& config, const DecoderParts& parts) {
  return parts.state_size > 0 ? parts.state_size : outer_width(config, parts);
}

// Adds what the vision tower gives the outputs of this layer.
ValueId add_deepstack(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  if (!c.deepstack.valid() || layer >= c.config.deepstack()) return x;
  return b.add(x, b.slice(c.deepstack, 0, layer, layer + 1));
}

// Builds the layers and the final norm. `input` is token ids, or embeddings where the model has a
// component for the token embedding. Returns the states of those tokens that the output is made of.
ValueId build_layers(GraphBuilder& b, const DecoderContext& c, const DecoderParts& parts,
                     ValueId input) {
  const ModelConfig& config = c.config;
  const int64_t width = outer_width(config, parts);
  ValueId x = config.takes_rows() ? take_rows(b, config, input) : embed(b, config, input, width);
  const bool made =
      !config.takes_rows() || config.scalars.multiplies_rows() || c.embeddings.valid();
  if (parts.enter) x = parts.enter(b, c, x);
  // Embeddings that are an input have no probe, because a probe needs an instruction that makes its
  // value.
  if (made) b.probe("hidden_states.0", x);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    b.set_layer(static_cast<int32_t>(layer));
    x = parts.layer(b, c, x, layer);
    // In the reference, the last hidden state is the output of the final norm.
    const bool last = layer + 1 == config.num_layers;
    if (last) b.probe("last_layer_prenorm", x);
    x = add_deepstack(b, c, x, layer);
    b.name(x, "hidden_states");
    if (!last) b.probe(fmt::format("hidden_states.{}", layer + 1), x);
  }
  b.set_layer(static_cast<int32_t>(config.num_layers));
  const bool last_only = c.options.style == ProgramStyle::kStateful && !c.options.all_logits;
  if (last_only) x = b.select(x, 1, -1);
  x = parts.final_norm(b, x);
  // Reference files have no name for a state of another width.
  if (state_width(config, parts) == config.hidden_size) {
    b.probe(fmt::format("hidden_states.{}", config.num_layers), x);
  }
  return x;
}

Result<graph::MethodGraph> named(std::string_view name, GraphBuilder& b) {
  graph::Graph finished = FERRY_TRY(b.finish());
  return graph::MethodGraph{std::string(name), std::move(finished)};
}

ValueId build_stack(GraphBuilder& b, const DecoderContext& c, const DecoderParts& parts,
                    ValueId input) {
  const ModelConfig& config = c.config;
  const ValueId x = build_layers(b, c, parts, input);
  const int64_t width = state_width(config, parts);
  ValueId logits = projection(b, x, "output", width, config.vocab_size, parts.head_bias);
  logits = scaled(b, logits, config.scalars.logits);
  return config.scalars.logit_softcap ? softcap(b, logits, *config.scalars.logit_softcap) : logits;
}

// Returns the number of rows that the encoder makes.
Dim encoded_rows(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options) {
  if (config.audio && !config.audio->takes_samples()) return positions(config.audio->positions);
  const int64_t most =
      config.source ? options.source_length : rows_of_samples(options.sound_samples);
  return positions(Dim::of(b.symbol("R", most, ValueId{})));
}

Result<graph::MethodGraph> build_forward(const ModelConfig& config, const BuildOptions& options,
                                         const DecoderParts& parts) {
  GraphBuilder b(static_cast<int32_t>(config.num_layers));
  const int32_t t = b.symbol("T", options.prefill_length, ValueId{});
  const ValueId input = decoder_input(b, config, options, DType::kI64, positions(Dim::of(t)));
  const ValueId input_pos = b.input(std::string(kInputPosPort), DType::kI64, {1});
  b.bind_symbol(t, b.sym_size(input, 1));
  PlaceInputs places = {.input_pos = input_pos};
  if (options.placed_rows) places.rows = input;
  if (config.vision && config.vision->two_way_images && !options.placed_rows) {
    places.attention_end =
        b.input(std::string(kAttentionEndPort), DType::kI64, {batch(), positions(Dim::of(t))});
  }
  if (!config.rope.axes.empty() && !options.placed_rows) {
    places.rope_positions =
        b.input(std::string(kRopePositionsPort), DType::kI64, {3, positions(Dim::of(t))});
  }
  DecoderContext c = make_decoder_context(b, config, options, places, t);
  if (takes_layer_tokens(config) && !options.placed_rows) {
    c.layer_tokens =
        b.input(std::string(kLayerTokensPort), DType::kI64, {batch(), positions(Dim::of(t))});
  }
  if (config.deepstack() > 0 && !options.placed_rows) {
    c.deepstack =
        b.input(std::string(kDeepstackPort), DType::kF32,
                {config.deepstack(), positions(Dim::of(t)), features(config.hidden_size)});
  }
  if (config.has_cross_attention()) c.encoded = encoded_rows(b, config, options);
  const ValueId entering = options.placed_rows ? c.embeddings : input;
  b.output(build_stack(b, c, parts, entering), std::string(kLogitsPort));
  return named(kForwardMethod, b);
}

// A classifier reads states as wide as the layers.
Status check_encoder(const ModelConfig& config, int64_t width) {
  if (config.classifier && width != config.hidden_size) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a classifier of {} whose states are {} wide, its layers {}: not "
                            "supported",
                            config.model_type, width, config.hidden_size));
  }
  return config.sentence ? check_sentence_widths(*config.sentence, width) : Status();
}

// Builds forward(tokens i64 [1,T]) -> states, and the sentence embedding where the config has one;
// or with `several` forward_texts, which takes the tokens of several texts.
Result<graph::MethodGraph> build_encoder(const ModelConfig& config, const BuildOptions& options,
                                         const DecoderParts& parts, bool several) {
  FERRY_RETURN_IF_ERROR(check_encoder(config, state_width(config, parts)));
  GraphBuilder b(static_cast<int32_t>(config.num_layers));
  const int64_t most = several ? options.texts_length : options.context_length;
  EncoderInputs inputs;
  inputs.tokens = b.symbol("T", most, ValueId{});
  const Dims by_token = {batch(), positions(Dim::of(inputs.tokens))};
  inputs.token_ids = decoder_input(b, config, options, DType::kI64, by_token[1]);
  b.bind_symbol(inputs.tokens, b.sym_size(inputs.token_ids, 1));
  if (several) {
    const int32_t texts = b.symbol("N", most, ValueId{});
    inputs.text_ids = b.input(std::string(kTextIdsPort), DType::kI64, by_token);
    inputs.position_ids = b.input(std::string(kPositionIdsPort), DType::kI64, by_token);
    inputs.last_tokens =
        b.input(std::string(kLastTokensPort), DType::kI64, {batch(), Dim::of(texts)});
    b.bind_symbol(texts, b.sym_size(inputs.last_tokens, 1));
  }
  if (parts.token_types) {
    inputs.token_types = b.input(std::string(kTokenTypesPort), DType::kI64, by_token);
  }
  const DecoderContext c = make_encoder_context(b, config, options, inputs);
  const ValueId states = build_layers(b, c, parts, inputs.token_ids);
  b.output(states, std::string(kLastHiddenStatePort));
  if (config.sentence) {
    b.output(sentence_embedding(b, c, *config.sentence, states),
             std::string(kSentenceEmbeddingPort));
  }
  if (config.classifier) {
    const std::string_view port =
        config.classifier->per_token() ? kTokenLogitsPort : kClassLogitsPort;
    b.output(classifier_outputs(b, c, *config.classifier, states), std::string(port));
  }
  return named(several ? kForwardTextsMethod : kForwardMethod, b);
}

Result<graph::MethodGraph> build_static(const ModelConfig& config, const BuildOptions& options,
                                        const DecoderParts& parts, std::string_view name,
                                        int64_t tokens) {
  GraphBuilder b(static_cast<int32_t>(config.num_layers));
  StaticPorts ports(b, config, options, tokens);
  const DecoderContext c = make_static_context(b, config, options, ports, tokens);
  ports.finish(b, build_stack(b, c, parts, ports.input()));
  return named(name, b);
}

}  // namespace

ValueId embed(GraphBuilder& b, const ModelConfig& config, ValueId tokens, int64_t width) {
  const ValueId table =
      b.weight("tok_embeddings.weight", {features(config.vocab_size), features(width)});
  return embedded(b, config, table, tokens);
}

ValueId embedded(GraphBuilder& b, const ModelConfig& config, ValueId table, ValueId tokens) {
  const bool later = config.takes_rows() && config.scalars.multiplies_rows();
  return scaled(b, b.embedding(table, tokens), later ? 1.0 : config.scalars.embedding);
}

Result<Methods> build_frame(const ModelConfig& config, const BuildOptions& options,
                            const DecoderParts& parts) {
  Methods methods;
  if (options.style == ProgramStyle::kStateful) {
    methods.push_back(FERRY_TRY(build_forward(config, options, parts)));
    return methods;
  }
  if (options.style == ProgramStyle::kEncoder) {
    methods.push_back(FERRY_TRY(build_encoder(config, options, parts, /*several=*/false)));
    if (options.texts_length == 0) return methods;
    methods.push_back(FERRY_TRY(build_encoder(config, options, parts, /*several=*/true)));
    return methods;
  }
  if (config.number(kChunkedWindows) != 0 && has_window(config, options)) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("'attention_chunk_size' is {}: callers of static programs make masks of "
                    "windows, not of chunks; a context of at most one chunk has none",
                    *config.sliding_window));
  }
  methods.push_back(
      FERRY_TRY(build_static(config, options, parts, kKvForwardMethod, options.decode_length)));
  BuildOptions prefill = options;
  prefill.ports = options.ports.of_prefill();
  methods.push_back(FERRY_TRY(
      build_static(config, prefill, parts, kPrefillForwardMethod, options.prefill_length)));
  return methods;
}

Result<Methods> build_token_embedding(const ModelConfig& config, const BuildOptions& options) {
  const auto method = [&](std::string_view name, DType ids,
                          std::optional<int64_t> tokens) -> Result<graph::MethodGraph> {
    GraphBuilder b(0);
    Dim count = tokens.value_or(0);
    if (!tokens) count = Dim::of(b.symbol("T", options.prefill_length, ValueId{}));
    const ValueId input = b.input(std::string(kTokensPort), ids, {batch(), positions(count)});
    if (!tokens) b.bind_symbol(count.symbol, b.sym_size(input, 1));
    const ValueId padded = padded_ids(b, config, input);
    const ValueId embedded = embed(b, config, padded, config.hidden_size);
    const ValueId rows = with_token_ranges(b, config, padded, embedded);
    b.output(placed_text(b, config, options, input, rows), std::string(kEmbeddingsPort));
    return named(name, b);
  };
  Methods methods;
  if (options.style == ProgramStyle::kStateful) {
    methods.push_back(FERRY_TRY(method(kForwardMethod, DType::kI64, std::nullopt)));
    return methods;
  }
  methods.push_back(FERRY_TRY(method(kEmbeddingKvMethod, DType::kI32, options.decode_length)));
  methods.push_back(
      FERRY_TRY(method(kEmbeddingPrefillMethod, DType::kI32, options.prefill_length)));
  return methods;
}

Result<Methods> build_decoder(const ModelConfig& config, const BuildOptions& options,
                              const Mixer& mixer, NormStyle norms) {
  const Layer both = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
    x = add_block(b, config, norms, layer, "attention_norm", "post_attention_norm", x,
                  [&](ValueId in) { return mixer(b, c, in, layer); });
    return add_block(b, config, norms, layer, "ffn_norm", "post_ffn_norm", x, [&](ValueId in) {
      const std::string prefix = layer_name(layer, "feed_forward");
      return config.has_experts(layer) ? sparse_mlp(b, c, in, layer, prefix)
                                       : gated_mlp(b, config, in, prefix, config.intermediate_size);
    });
  };
  const auto final_norm = [&](GraphBuilder& b, ValueId x) {
    return rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  };
  return build_frame(
      config, options,
      {.layer = both, .final_norm = final_norm, .head_bias = config.number(kHeadBias) != 0});
}

Result<Methods> build_single_blocks(const ModelConfig& config, const BuildOptions& options,
                                    const Mixer& mixer) {
  const Layer one = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
    return add_block(b, config, {}, layer, "attention_norm", nullptr, x,
                     [&](ValueId in) { return mixer(b, c, in, layer); });
  };
  const auto final_norm = [&](GraphBuilder& b, ValueId x) {
    return rms_norm(b, x, "norm.weight", config.rms_norm_eps);
  };
  return build_frame(config, options, {.layer = one, .final_norm = final_norm});
}

Result<Methods> build_attention_decoder(const ModelConfig& config, const BuildOptions& options,
                                        const AttentionStyle& style, NormStyle norms) {
  const Mixer mixer = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
    return attention(b, c, x, layer, style);
  };
  return build_decoder(config, options, mixer, norms);
}

Result<Methods> build_mixed_decoder(const ModelConfig& config, const BuildOptions& options,
                                    const AttentionStyle& style, const Mixer& other) {
  return build_decoder(config, options,
                       [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
                         return is_attention(config.layer_types[static_cast<size_t>(layer)])
                                    ? attention(b, c, x, layer, style)
                                    : other(b, c, x, layer);
                       });
}

std::vector<KeyRule> llama_rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       bias_rules(prefix, config.attention_bias, config.attention_bias, config.mlp_bias)});
}

Result<Methods> build_llama(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(
      config, options, {.qkv_bias = config.attention_bias, .output_bias = config.attention_bias});
}

}  // namespace ferry::converters
