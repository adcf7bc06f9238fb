// Falcon 7B, 40B, 180B and RW, and Falcon 2: q, k and v in one tensor, RoPE or ALiBi, and three
// forms of a layer. Source: transformers, models/falcon/modeling_falcon.py.

#include "converters/blocks/alibi.h"
#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::falcon {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kTwoNorms = "num_ln_in_parallel_attn";
constexpr const char* kParallel = "parallel_attn";

// The reference fails for the other combinations of parallel_attn and num_ln_in_parallel_attn.
Status read(const JsonFields& fields, ModelConfig& config) {
  const bool newer = FERRY_TRY(fields.flag_or("new_decoder_architecture", false));
  const bool parallel = FERRY_TRY(fields.flag_or(kParallel, false));
  const int64_t norms = FERRY_TRY(fields.integer_or(kTwoNorms, {0, INT32_MAX}, newer ? 2 : 1));
  if (newer && !parallel) return fields.bad(kParallel, "is not true in the new architecture");
  if (newer ? norms != 1 && norms != 2 : parallel && norms == 2) {
    return fields.bad(kTwoNorms, "is not what the architecture has");
  }
  config.numbers[kParallel] = parallel ? 1 : 0;
  config.numbers[kTwoNorms] = newer && norms == 2 ? 1 : 0;
  const bool one = !newer && FERRY_TRY(fields.flag_or("multi_query", false));
  if (one) config.num_kv_heads = 1;
  if (!newer && !one && config.num_kv_heads != config.num_heads) {
    return fields.bad("num_key_value_heads", "is not the number of heads");
  }
  if (FERRY_TRY(fields.flag_or("alibi", false))) config.numbers[kAlibi] = kRoundedAlibi;
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias, two = config.number(kTwoNorms) > 0;
  const std::string layer = prefix + "h.{i}.";
  std::vector<KeyRule> rules =
      concat({query_key_value_rules(layer, "self_attention.", bias),
              plain_mlp_rules(prefix, bias, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "h.{i}."),
              parameter_rules(layer, /*bias=*/true,
                              {{two ? "ln_attn" : "input_layernorm", "layers.{i}.attention_norm"}}),
              parameter_rules(prefix, /*bias=*/true, {{"ln_f", "norm"}}),
              rename_rules(prefix, {{"word_embeddings.weight", "tok_embeddings.weight"}})});
  if (config.number(kParallel) > 0 && !two) return rules;
  return concat({rules, parameter_rules(layer, /*bias=*/true,
                                        {{two ? "ln_mlp" : "post_attention_layernorm",
                                          "layers.{i}.ffn_norm"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  const Residuals parallel =
      config.number(kTwoNorms) > 0 ? Residuals::kSideBySide : Residuals::kOneNorm;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias},
       .residuals = config.number(kParallel) > 0 ? parallel : Residuals::kInTurn,
       .mlp_bias = bias});
}

// In a checkpoint the rows of a head of keys and of its values follow those of its queries.
RowOrder by_group(const ModelConfig& c) {
  const int64_t queries = c.num_heads / c.num_kv_heads * c.head_dim, dim = c.head_dim;
  const int64_t keys = c.q_size(), values = keys + c.kv_size();
  RowOrder rows;
  for (int64_t i = 0; i < c.num_kv_heads; ++i) {
    rows.push_back(run_piece(0, i * queries, queries));
    rows.push_back(run_piece(0, keys + i * dim, dim));
    rows.push_back(run_piece(0, values + i * dim, dim));
  }
  return rows;
}

RowOrder by_kind(const ModelConfig& c) {
  const int64_t queries = c.num_heads / c.num_kv_heads * c.head_dim, dim = c.head_dim;
  RowOrder rows;
  for (const auto& [first, count] :
       {std::pair(int64_t{0}, queries), std::pair(queries, dim), std::pair(queries + dim, dim)}) {
    StridedPiece piece{.offset = first};
    add_axis(piece, {c.num_kv_heads, queries + 2 * dim});
    add_axis(piece, {count, 1});
    rows.push_back(std::move(piece));
  }
  return rows;
}

constexpr GgufForm kGroupedQkv = {.order = by_group, .written = by_kind};

constexpr GgufName kFalconGguf[] = {
    {"token_embd.weight", "transformer.word_embeddings.weight"},
    {"output_norm.weight", "transformer.ln_f.weight"},
    {"output_norm.bias", "transformer.ln_f.bias"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_qkv.weight", "transformer.h.{i}.self_attention.query_key_value.weight",
     kGroupedQkv},
    {"blk.{i}.attn_output.weight", "transformer.h.{i}.self_attention.dense.weight"},
    {"blk.{i}.ffn_up.weight", "transformer.h.{i}.mlp.dense_h_to_4h.weight"},
    {"blk.{i}.ffn_down.weight", "transformer.h.{i}.mlp.dense_4h_to_h.weight"},
};
constexpr GgufName kOneNormGguf[] = {
    {"blk.{i}.attn_norm.weight", "transformer.h.{i}.input_layernorm.weight"},
    {"blk.{i}.attn_norm.bias", "transformer.h.{i}.input_layernorm.bias"},
};
// The norm of the MLP has the name that is otherwise that of attention's.
constexpr GgufName kTwoNormsGguf[] = {
    {"blk.{i}.attn_norm.weight", "transformer.h.{i}.ln_mlp.weight"},
    {"blk.{i}.attn_norm.bias", "transformer.h.{i}.ln_mlp.bias"},
    {"blk.{i}.attn_norm_2.weight", "transformer.h.{i}.ln_attn.weight"},
    {"blk.{i}.attn_norm_2.bias", "transformer.h.{i}.ln_attn.bias"},
};

// Files have one norm, or two.
GgufArchitecture gguf(bool two_norms) {
  const auto two = [](const ModelConfig& c) { return c.number(kTwoNorms) > 0; };
  const auto one = [](const ModelConfig& c) { return c.number(kTwoNorms) == 0; };
  return {.name = "falcon",
          .tables = {kFalconGguf, two_norms ? GgufNames(kTwoNormsGguf) : GgufNames(kOneNormGguf)},
          .layer_norm = true,
          .sign = two_norms ? GgufSign::kTwoNorms : GgufSign::kNone,
          .own_keys = GgufOwnKeys::kFalcon,
          .keys = {kContext, kDataLayout, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads,
                   kLayerNormEpsilon, kFileType, kOtherRopeBase},
          .writes = two_norms ? +two : +one,
          .activation = Activation::kGelu,
          .rough_gelu = true,
          .equal_heads = true};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "falcon",
               .defaults = R"({"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32,
                               "num_attention_heads": 71, "max_position_embeddings": 2048,
                               "activation": "gelu", "rms_norm_eps": 1e-5, "multi_query": true,
                               "parallel_attn": true, "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"n_embed", "hidden_size"}},
                         {"intermediate_size", {"ffn_hidden_size"}},
                         {"num_key_value_heads", {"num_kv_heads"}},
                         {"rms_norm_eps", {"layer_norm_epsilon"}},
                         {"attention_bias", {"bias"}}},
               .unread = {"head_dim"},
               .activation_key = "activation",
               .mlp_ratio = 4,
               .attention_bias = true,
               .rope_layers = RopeLayers::kUnlessAlibi,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"Falcon", early_score_head}},
    .gguf = {gguf(/*two_norms=*/false), gguf(/*two_norms=*/true)}};

}  // namespace ferry::converters::families::falcon
