// T5, mT5 and UMT5: a text encoder, and a decoder whose layers attend to its output between
// attention and MLP. Scores are not scaled; a bias by distance is added to them, in T5 and mT5 that
// of the first layer in all layers. Source: transformers, models/t5, mt5 and umt5.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "converters/blocks/source_encoder.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::t5 {
namespace {

constexpr const char* kBuckets = "relative_attention_num_buckets";
constexpr const char* kFarthest = "relative_attention_max_distance";
constexpr const char* kProjection = "feed_forward_proj";
constexpr std::string_view kGated = "gated-";
// Whether the config says in tie_word_embeddings that the head is scaled. The reference ties the
// head whatever it says.
constexpr std::string_view kScalesHead = "scales_head";
constexpr IntRange kBucketRange = {4, 1 << 16}, kFarthestRange = {1, 1 << 24};

// A member of ModelConfig::numbers: 1 where the MLP has a gate.
constexpr const char* kGate = "gated_mlp";

// relu, or gated- and the name of an activation. Saved configs also state what follows from it, and
// the reference takes that where the two differ.
Status read_mlp(const JsonFields& fields, ModelConfig& config) {
  constexpr const char* kActivation = "dense_act_fn";
  const std::string value = FERRY_TRY(fields.text(kProjection)).value_or("");
  const bool named_gated = value.starts_with(kGated);
  const bool gated = FERRY_TRY(fields.flag_or("is_gated_act", named_gated));
  config.numbers[kGate] = gated ? 1 : 0;
  // In the reference this name alone means the approximation by a tanh.
  const std::string name = value == "gated-gelu" ? "gelu_new"
                           : named_gated         ? value.substr(kGated.size())
                                                 : value;
  const bool states = fields.states(kActivation);
  config.activation = FERRY_TRY(states ? read_activation(fields, kActivation, "")
                                       : activation_named(fields, kProjection, name));
  return {};
}

// In the encoder each direction has half of the buckets, and half of these are of one distance
// each.
Status read_bias(const JsonFields& fields, ModelConfig& config) {
  RelativeBiasConfig& bias = config.relative_bias.emplace();
  bias.buckets = FERRY_TRY(fields.required(kBuckets, kBucketRange));
  bias.farthest = FERRY_TRY(fields.required(kFarthest, kFarthestRange));
  const int64_t exact = bias.buckets / 2;
  if (bias.farthest > exact) return {};
  return fields.error(ErrorCode::kUnsupported, kFarthest,
                      fmt::format("is {}, not more than the {} distances that have buckets of "
                                  "their own",
                                  bias.farthest, exact));
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_encoder_decoder(fields));
  FERRY_RETURN_IF_ERROR(read_mlp(fields, config));
  FERRY_RETURN_IF_ERROR(read_bias(fields, config));
  SourceConfig& source = config.source.emplace();
  source.hidden_size = config.hidden_size;
  source.num_layers = config.num_layers;
  source.num_heads = config.num_heads;
  source.head_dim = config.head_dim;
  source.intermediate_size = config.intermediate_size;
  source.max_positions = config.max_positions;
  // num_hidden_layers, another name of num_layers, says nothing about the decoder.
  const int64_t layers = FERRY_TRY(fields.required("num_layers", kLayerRange));
  config.num_layers = FERRY_TRY(fields.integer_or("num_decoder_layers", kLayerRange, layers));
  (void)fields.find("is_decoder");  // the class sets it in both parts
  config.scalars.attention = 1.0;
  return {};
}

void scale_head(ModelConfig& config) {
  config.scalars.logits = 1.0 / std::sqrt(static_cast<double>(config.hidden_size));
}

Status read_t5(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read(fields, config));
  const bool otherwise = FERRY_TRY(fields.flag_or(kScalesHead, true));
  if (FERRY_TRY(fields.flag_or("scale_decoder_outputs", otherwise))) scale_head(config);
  return {};
}

Status read_umt5(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read(fields, config));
  config.relative_bias->by_layer = true;
  scale_head(config);
  return {};
}

// Rules of self-attention and of the MLP, which is the last of the blocks of a layer.
std::vector<KeyRule> layer_rules(const ModelConfig& config, const std::string& source,
                                 const std::string& target, int64_t layers, int mlp) {
  const std::string attention = "layer.0.SelfAttention.";
  const std::string dense = fmt::format("layer.{}.DenseReluDense.", mlp);
  std::vector<std::pair<std::string, std::string>> names = {
      {"layer.0.layer_norm", "attention_norm"},
      {attention + "q", "attention.wq"},
      {attention + "k", "attention.wk"},
      {attention + "v", "attention.wv"},
      {attention + "o", "attention.wo"},
      {fmt::format("layer.{}.layer_norm", mlp), "ffn_norm"},
      {dense + "wo", "feed_forward.w2"}};
  if (config.number(kGate) != 0) {
    names.insert(names.end(),
                 {{dense + "wi_0", "feed_forward.w1"}, {dense + "wi_1", "feed_forward.w3"}});
  } else {
    names.push_back({dense + "wi", "feed_forward.w1"});
  }
  std::vector<KeyRule> rules;
  for (const auto& [from, to] : names) {
    const std::string key = from + ".weight", name = target + "layers.{i}." + to + ".weight";
    rules = concat(
        {rules, tower_renames(source + "block.{i}.", layers, {{key.c_str(), name.c_str()}})});
  }
  return rules;
}

// Rules of the tables of biases.
std::vector<KeyRule> bias_table_rules(const ModelConfig& config, const std::string& source,
                                      const std::string& target, int64_t layers) {
  const std::string key = "layer.0.SelfAttention.relative_attention_bias.weight";
  const bool by_layer = config.relative_bias->by_layer;
  const std::string name =
      target + (by_layer ? "layers.{i}.relative_bias.weight" : "relative_bias.weight");
  return by_layer ? tower_renames(source + "block.{i}.", layers, {{key.c_str(), name.c_str()}})
                  : tower_renames(source + "block.0.", 0, {{key.c_str(), name.c_str()}});
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  const int64_t encoder_layers = config.source->num_layers;
  return concat(
      {tower_renames(prefix, 0,
                     {{"shared.weight", kSharedTable},
                      {"encoder.embed_tokens.weight", "source.tok_embeddings.weight"},
                      {"decoder.embed_tokens.weight", "tok_embeddings.weight"},
                      {"encoder.final_layer_norm.weight", "source.norm.weight"},
                      {"decoder.final_layer_norm.weight", "norm.weight"}}),
       layer_rules(config, encoder, kSourcePrefix, encoder_layers, 1),
       bias_table_rules(config, encoder, kSourcePrefix, encoder_layers),
       layer_rules(config, decoder, "", config.num_layers, 2),
       bias_table_rules(config, decoder, "", config.num_layers),
       rename_rules(decoder + "block.{i}.layer.1.",
                    {{"layer_norm.weight", "layers.{i}.cross_norm.weight"},
                     {"EncDecAttention.q.weight", "layers.{i}.cross_attention.wq.weight"},
                     {"EncDecAttention.k.weight", "layers.{i}.cross_attention.wk.weight"},
                     {"EncDecAttention.v.weight", "layers.{i}.cross_attention.wv.weight"},
                     {"EncDecAttention.o.weight", "layers.{i}.cross_attention.wo.weight"}}),
       {drop_rule(decoder + "block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
                  "a bias of cross-attention, which the reference does not read")}});
}

using enum GgufKey;

bool is_gated(const ModelConfig& config) { return config.number(kGate) != 0; }
bool is_plain(const ModelConfig& config) { return !is_gated(config); }
bool is_tied(const ModelConfig& config) { return config.tie_word_embeddings; }

// Readers scale no outputs of the decoder: the head of a file is scaled instead.
std::vector<double> head_factors(const ModelConfig& config) { return {config.scalars.logits}; }

constexpr GgufForm kOfGated = {.fits = is_gated}, kOfPlain = {.fits = is_plain};
constexpr GgufForm kOwnHead = {.factors = head_factors};
constexpr GgufForm kTiedHead = {.factors = head_factors, .fits = is_tied};

constexpr GgufName kT5Gguf[] = {
    {"output.weight", "lm_head.weight", kOwnHead},
    {"output.weight", "shared.weight", kTiedHead},
    {"token_embd.weight", "shared.weight"},
    {"enc.output_norm.weight", "encoder.final_layer_norm.weight"},
    {"enc.blk.{i}.attn_norm.weight", "encoder.block.{i}.layer.0.layer_norm.weight"},
    {"enc.blk.{i}.attn_q.weight", "encoder.block.{i}.layer.0.SelfAttention.q.weight"},
    {"enc.blk.{i}.attn_k.weight", "encoder.block.{i}.layer.0.SelfAttention.k.weight"},
    {"enc.blk.{i}.attn_v.weight", "encoder.block.{i}.layer.0.SelfAttention.v.weight"},
    {"enc.blk.{i}.attn_o.weight", "encoder.block.{i}.layer.0.SelfAttention.o.weight"},
    {"enc.blk.{i}.attn_rel_b.weight",
     "encoder.block.{i}.layer.0.SelfAttention.relative_attention_bias.weight"},
    {"enc.blk.{i}.ffn_norm.weight", "encoder.block.{i}.layer.1.layer_norm.weight"},
    {"enc.blk.{i}.ffn_gate.weight", "encoder.block.{i}.layer.1.DenseReluDense.wi_0.weight",
     kOfGated},
    {"enc.blk.{i}.ffn_up.weight", "encoder.block.{i}.layer.1.DenseReluDense.wi_1.weight", kOfGated},
    {"enc.blk.{i}.ffn_up.weight", "encoder.block.{i}.layer.1.DenseReluDense.wi.weight", kOfPlain},
    {"enc.blk.{i}.ffn_down.weight", "encoder.block.{i}.layer.1.DenseReluDense.wo.weight"},
    {"dec.output_norm.weight", "decoder.final_layer_norm.weight"},
    {"dec.blk.{i}.attn_norm.weight", "decoder.block.{i}.layer.0.layer_norm.weight"},
    {"dec.blk.{i}.attn_q.weight", "decoder.block.{i}.layer.0.SelfAttention.q.weight"},
    {"dec.blk.{i}.attn_k.weight", "decoder.block.{i}.layer.0.SelfAttention.k.weight"},
    {"dec.blk.{i}.attn_v.weight", "decoder.block.{i}.layer.0.SelfAttention.v.weight"},
    {"dec.blk.{i}.attn_o.weight", "decoder.block.{i}.layer.0.SelfAttention.o.weight"},
    {"dec.blk.{i}.attn_rel_b.weight",
     "decoder.block.{i}.layer.0.SelfAttention.relative_attention_bias.weight"},
    {"dec.blk.{i}.cross_attn_norm.weight", "decoder.block.{i}.layer.1.layer_norm.weight"},
    {"dec.blk.{i}.cross_attn_q.weight", "decoder.block.{i}.layer.1.EncDecAttention.q.weight"},
    {"dec.blk.{i}.cross_attn_k.weight", "decoder.block.{i}.layer.1.EncDecAttention.k.weight"},
    {"dec.blk.{i}.cross_attn_v.weight", "decoder.block.{i}.layer.1.EncDecAttention.v.weight"},
    {"dec.blk.{i}.cross_attn_o.weight", "decoder.block.{i}.layer.1.EncDecAttention.o.weight"},
    {"dec.blk.{i}.cross_attn_rel_b.weight",
     "decoder.block.{i}.layer.1.EncDecAttention.relative_attention_bias.weight"},
    {"dec.blk.{i}.ffn_norm.weight", "decoder.block.{i}.layer.2.layer_norm.weight"},
    {"dec.blk.{i}.ffn_gate.weight", "decoder.block.{i}.layer.2.DenseReluDense.wi_0.weight",
     kOfGated},
    {"dec.blk.{i}.ffn_up.weight", "decoder.block.{i}.layer.2.DenseReluDense.wi_1.weight", kOfGated},
    {"dec.blk.{i}.ffn_up.weight", "decoder.block.{i}.layer.2.DenseReluDense.wi.weight", kOfPlain},
    {"dec.blk.{i}.ffn_down.weight", "decoder.block.{i}.layer.2.DenseReluDense.wo.weight"},
};

// An MLP has either of two activations in readers, by its gate.
GgufArchitecture gguf(bool gated) {
  GgufArchitecture a;
  a.name = "t5";
  a.tokenizer_keys = {.pieces = true};
  a.other_types = {"mt5"};
  a.tables = {kT5Gguf};
  a.own_keys = GgufOwnKeys::kT5;
  a.keys = {kContext,    kEmbedding,    kFeedForward,      kSourceBlocks,
            kHeads,      kHeadLengths,  kLayerNormEpsilon, kRelativeBuckets,
            kRmsEpsilon, kDecoderStart, kFileType};
  a.writes = gated ? is_gated : is_plain;
  a.activation = gated ? Activation::kGeluTanh : Activation::kRelu;
  a.turns_nothing = true;
  a.rough_gelu = gated;
  return a;
}

DecoderStyle style(const ModelConfig& config) {
  return {.norm = NormKind::kRms, .gated = config.number(kGate) != 0};
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle of_decoder = style(config);
  of_decoder.cross_attention = true;
  return build_styled_decoder(config, options, of_decoder);
}

Result<Methods> build_encoder(const ModelConfig& config, const BuildOptions& options) {
  return build_source_encoder(config, options, style(config));
}

// Distances have no greatest one, so that max_position_embeddings is only a bound.
constexpr const char* kT5Defaults = R"({"vocab_size": 32128, "hidden_size": 512, "head_dim": 64,
    "intermediate_size": 2048, "num_hidden_layers": 6, "num_layers": 6, "num_attention_heads": 8,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
    "rms_norm_eps": 1e-6, "feed_forward_proj": "relu", "eos_token_id": 1,
    "max_position_embeddings": 1048576, "tie_word_embeddings": true})";
constexpr const char* kMt5Defaults = R"({"vocab_size": 250112, "hidden_size": 512, "head_dim": 64,
    "intermediate_size": 1024, "num_hidden_layers": 8, "num_layers": 8, "num_attention_heads": 6,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
    "rms_norm_eps": 1e-6, "feed_forward_proj": "gated-gelu", "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "max_position_embeddings": 1048576, "tie_word_embeddings": true})";

ModelType type(std::string_view name, std::string_view defaults,
               Status (*read_type)(const JsonFields&, ModelConfig&)) {
  ModelType type;
  type.name = name;
  type.defaults = defaults;
  type.names = {{"hidden_size", {"hidden_size", "d_model"}},
                {"intermediate_size", {"d_ff"}},
                {"num_hidden_layers", {"num_hidden_layers", "num_layers"}},
                {"num_attention_heads", {"num_attention_heads", "num_heads"}},
                {"head_dim", {"head_dim", "d_kv"}},
                {"rms_norm_eps", {"layer_norm_epsilon"}},
                {kScalesHead, {"tie_word_embeddings"}}};
  type.unread = {"num_key_value_heads", "max_position_embeddings", "tie_word_embeddings"};
  type.activation_key = "";
  type.rope = RopeRule::kNone;
  type.rope_layers = RopeLayers::kNone;
  type.read = read_type;
  return type;
}

}  // namespace

const FamilySpec kFamily = {
    .types = {type("t5", kT5Defaults, read_t5), type("mt5", kMt5Defaults, read),
              type("umt5", kMt5Defaults, read_umt5)},
    .components =
        {{.prefixes = {""}, .rules = rules, .build = build},
         {.role = kSourceEncoderRole, .prefixes = {}, .heads = {}, .build = build_encoder}},
    .gguf = {gguf(true),
             gguf(false),
             {.name = "t5",
              .model_type = "umt5",
              .tables = {kT5Gguf},
              .sign = GgufSign::kBiasesOfLayers,
              .own_keys = GgufOwnKeys::kT5}}};

}  // namespace ferry::converters::families::t5
