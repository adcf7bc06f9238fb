// BitNet b1.58: Llama with a norm before the last matrix of each block. Matrices may be ternary,
// and their inputs rounded to 8 bits. Source: transformers, models/bitnet/modeling_bitnet.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::bitnet {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kInnerNormsGguf[] = {
    {"blk.{i}.attn_sub_norm.weight", "model.layers.{i}.self_attn.attn_sub_norm.weight"},
    {"blk.{i}.ffn_sub_norm.weight", "model.layers.{i}.mlp.ffn_sub_norm.weight"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kMlpNorm] = 1;
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  return concat(
      {llama_rules(config, prefix),
       rename_rules(layer,
                    {{"self_attn.attn_sub_norm.weight", "layers.{i}.attention.output_norm.weight"},
                     {"mlp.ffn_sub_norm.weight", "layers.{i}.feed_forward.norm.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_attention_decoder(config, options,
                                 {.qkv_bias = bias, .output_bias = bias, .output_norm = true});
}

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "bitnet",
                                       .defaults = R"({"vocab_size": 128256, "hidden_size": 2560,
                               "intermediate_size": 6912, "num_hidden_layers": 30,
                               "num_attention_heads": 20, "num_key_value_heads": 5,
                               "hidden_act": "relu2", "max_position_embeddings": 2048,
                               "rms_norm_eps": 1e-5, "rope_theta": 500000.0})",
                                       .attention_bias = true,
                                       .ternary = true,
                                       .read = read}},
                            .components = {{.rules = rules, .build = build}},
                            .gguf = {{.name = "bitnet",
                                      .tokenizer_keys = {.sentence_piece = true},
                                      .tables = {kFrame, kAttention, kFusedAttention,
                                                 kValueAndOutput, kPreNorm, kMlp, kInnerNormsGguf},
                                      .own_keys = GgufOwnKeys::kBitnet,
                                      .keys = standard_keys({kUnscaledRope, kNamedActivation}),
                                      .unread = attention_biases(),
                                      .tied_head = true,
                                      .equal_heads = true}}};

}  // namespace ferry::converters::families::bitnet
