// StarCoder and SantaCoder: GPT-2 with linear layers instead of Conv1D, and one head of keys and
// values, unless multi_query is false. Source: transformers,
// models/gpt_bigcode/modeling_gpt_bigcode.py.

#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt_bigcode {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kGptBigCodeGguf[] = {
    {"blk.{i}.attn_qkv.weight", "transformer.h.{i}.attn.c_attn.weight"},
    {"blk.{i}.attn_output.weight", "transformer.h.{i}.attn.c_proj.weight"},
    {"blk.{i}.ffn_up.weight", "transformer.h.{i}.mlp.c_fc.weight"},
    {"blk.{i}.ffn_down.weight", "transformer.h.{i}.mlp.c_proj.weight"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.flag_or("multi_query", false))) config.num_kv_heads = 1;
  return gpt2::kFamily.types.front().read(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "h.{i}.";
  const bool one = config.num_kv_heads == 1;
  return concat({gpt_rules(prefix),
                 packed_qkv_rules(layer + "attn.c_attn", /*bias=*/true,
                                  one ? PackedLayout::kConcatenated : PackedLayout::kInterleaved),
                 parameter_rules(
                     layer, /*bias=*/true,
                     {{"attn.c_proj", "layers.{i}.attention.wo"}, {"ln_2", "layers.{i}.ffn_norm"}}),
                 plain_mlp_rules(prefix, /*bias=*/true, "mlp.c_fc", "mlp.c_proj", "h.{i}."),
                 rename_rules(prefix, {{"wpe.weight", "position_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return gpt2::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gpt_bigcode",
               .defaults = R"({"vocab_size": 50257, "hidden_size": 768, "num_hidden_layers": 12,
                               "num_attention_heads": 12, "max_position_embeddings": 1024,
                               "rms_norm_eps": 1e-5, "activation_function": "gelu_pytorch_tanh",
                               "tie_word_embeddings": true, "multi_query": true})",
               .names = gpt_names(),
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"GPTBigCode", early_score_head}},
    .gguf = {{.name = "starcoder",
              .tables = {kGpt2, kGptBigCodeGguf},
              .layer_norm = true,
              .keys = {kContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads,
                       kLayerNormEpsilon, kFileType},
              .activation = Activation::kGeluTanh,
              .turns_nothing = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::gpt_bigcode
