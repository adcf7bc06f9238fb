// Jina Embeddings v3: BERT with RoPE instead of learned positions, and names of its own.
// Source: transformers, models/jina_embeddings_v3/modeling_jina_embeddings_v3.py.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::jina_embeddings_v3 {
namespace {

using enum GgufKey;

constexpr GgufName kJinaGguf[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.weight", "emb_ln.weight"},
    {"token_embd_norm.bias", "emb_ln.bias"},
    {"blk.{i}.attn_qkv.weight", "encoder.layers.{i}.mixer.Wqkv.weight"},
    {"blk.{i}.attn_qkv.bias", "encoder.layers.{i}.mixer.Wqkv.bias"},
    {"blk.{i}.attn_output.weight", "encoder.layers.{i}.mixer.out_proj.weight"},
    {"blk.{i}.attn_output.bias", "encoder.layers.{i}.mixer.out_proj.bias"},
    {"blk.{i}.attn_output_norm.weight", "encoder.layers.{i}.norm1.weight"},
    {"blk.{i}.attn_output_norm.bias", "encoder.layers.{i}.norm1.bias"},
    {"blk.{i}.ffn_up.weight", "encoder.layers.{i}.mlp.fc1.weight"},
    {"blk.{i}.ffn_up.bias", "encoder.layers.{i}.mlp.fc1.bias"},
    {"blk.{i}.ffn_down.weight", "encoder.layers.{i}.mlp.fc2.weight"},
    {"blk.{i}.ffn_down.bias", "encoder.layers.{i}.mlp.fc2.bias"},
    {"blk.{i}.layer_output_norm.weight", "encoder.layers.{i}.norm2.weight"},
    {"blk.{i}.layer_output_norm.bias", "encoder.layers.{i}.norm2.bias"},
};

// The names in released checkpoints.
std::vector<KeyRule> released_rules(const std::string& prefix) {
  const std::string layer = prefix + "encoder.layers.{i}.";
  return concat({bert_norm_rules(prefix, "emb_ln", "embedding_norm"),
                 packed_qkv_rules(layer + "mixer.Wqkv", /*bias=*/true, PackedLayout::kConcatenated),
                 parameter_rules(layer, /*bias=*/true,
                                 {{"mixer.out_proj", "layers.{i}.attention.wo"},
                                  {"mlp.fc1", "layers.{i}.feed_forward.w1"},
                                  {"mlp.fc2", "layers.{i}.feed_forward.w2"},
                                  {"norm1", "layers.{i}.attention_norm"},
                                  {"norm2", "layers.{i}.ffn_norm"}})});
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat(
      {released_rules(prefix),
       rename_rules(prefix, {{"embeddings.word_embeddings.weight", "tok_embeddings.weight"},
                             {"embeddings.token_type_embeddings.weight", "token_types.weight"}}),
       {drop_rule(prefix + "embeddings.position_ids", "numbers that follow from the config"),
        drop_rule(prefix + "embeddings.token_type_ids", "numbers that follow from the config")},
       bert_norm_rules(prefix, "embeddings.LayerNorm", "embedding_norm"),
       attention_rules(prefix, /*bias=*/true),
       parameter_rules(prefix, /*bias=*/true,
                       {{"layers.{i}.mlp.fc1", "layers.{i}.feed_forward.w1"},
                        {"layers.{i}.mlp.fc2", "layers.{i}.feed_forward.w2"},
                        {"layers.{i}.post_attention_layernorm", "layers.{i}.attention_norm"},
                        {"layers.{i}.post_mlp_layernorm", "layers.{i}.ffn_norm"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle style = bert_style();
  style.learned_positions = false;
  return build_styled_decoder(config, options, style);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "jina_embeddings_v3",
               .defaults = R"({"vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24,
                               "num_attention_heads": 16, "intermediate_size": 4096,
                               "hidden_act": "gelu", "max_position_embeddings": 8194,
                               "type_vocab_size": 1, "rms_norm_eps": 1e-5, "pad_token_id": 1,
                               "rope_theta": 20000.0})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
               .unread = {"num_key_value_heads"},
               .sizes = {kTokenTypes},
               .two_way = TwoWayRule::kAlways}},
    .components = {{.prefixes = {"roberta."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"roberta.pooler.*", kEncoderHead}, {"lm_head.*", kEncoderHead}},
    .classifiers = {{"JinaEmbeddingsV3", dense_head}},
    .gguf = {{.name = "jina-bert-v3",
              .tokenizer_keys = {.encoder = true},
              .tables = {kJinaGguf},
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kEncoder,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kRopeBase,
                       kLayerNormEpsilon, kFileType, kNotCausal, kPooling},
              .activation = Activation::kGeluTanh,
              .rough_gelu = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::jina_embeddings_v3
