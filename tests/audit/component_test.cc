#include "audit/component.h"

#include <gtest/gtest.h>

namespace ferry::audit::component_test {
namespace {

struct Case {
  const char *name, *component;
  int layer;  // -1: none
};

// Tensor names of Hugging Face checkpoints, of GGUF files, of KerasHub and of our bundles.
constexpr Case kCases[] = {
    {"model.embed_tokens.weight", "embedding", -1},
    {"token_embd.weight", "embedding", -1},
    {"tok_embeddings.weight.scales", "embedding", -1},
    {"layers/reversible_embedding/vars/0", "embedding", -1},
    {"layers/reversible_embedding/vars/1", "head", -1},
    {"lm_head.weight", "head", -1},
    {"output.weight", "head", -1},
    {"output_norm.weight", "norm", -1},
    {"model.layers.11.self_attn.q_proj.weight", "attn.q", 11},
    {"blk.3.attn_k.bias", "attn.k", 3},
    {"layers.3.attention.wv.weight.scales", "attn.v", 3},
    {"layers.0.attention.wq.5.weight", "attn.q", 0},
    {"model.layers.0.self_attn.q_norm.weight", "norm", 0},
    {"model.layers.0.self_attn.qkv_proj.weight", "attn.qkv", 0},
    {"blk.0.attn_output.weight", "attn.o", 0},
    {"layers/llama_transformer_decoder/_self_attention_layer/_query_dense/vars/0", "attn.q", 0},
    {"layers/llama_transformer_decoder_2/_feedforward_output_dense/vars/0", "mlp.down", 2},
    {"layers/gemma_decoder_block_1/gating_ffw_2/vars/0", "mlp.up", 1},
    {"model.layers.2.mlp.gate_proj.weight", "mlp.gate", 2},
    {"model.layers.2.mlp.gate_up_proj.weight", "mlp.gate_up", 2},
    {"layers.2.feed_forward.w2.weight", "mlp.down", 2},
    {"model.layers.2.mlp.gate.weight", "router", 2},
    {"blk.2.ffn_gate_inp.weight", "router", 2},
    {"model.layers.2.mlp.experts.7.up_proj.weight", "experts", 2},
    {"blk.2.ffn_down_exps.weight", "experts", 2},
    {"model.layers.2.linear_attn.in_proj_qkvz.weight", "linear_attn", 2},
    {"blk.2.ssm_conv1d.weight", "linear_attn", 2},
    {"layers.2.attention.out_proj.weight", "linear_attn", 2},
    {"model.layers.2.conv.in_proj.weight", "conv", 2},
    {"rope_freqs.weight", "rope", -1},
    {"layers.0.attention.kv_cache.k_cache", "attn.k", 0},
    {"model.vision_model.encoder.layers.4.self_attn.out_proj.weight", "vision.attn.o", 4},
    {"model.visual.blocks.4.mlp.linear_fc1.weight", "vision.mlp.up", 4},
    {"multi_modal_projector.linear_1.weight", "vision.connector", -1},
    {"audio.connector.w1.weight", "audio.connector", -1},
    {"mtp.layers.0.self_attn.q_proj.weight", "attn.q", -1},
    {"model.property.weight", "other", -1},
    {"", "other", -1},
};

TEST(Component, NamesOfAllFormats) {
  for (const Case& each : kCases) {
    const Component found = component_of(each.name);
    EXPECT_EQ(found.name, each.component) << each.name;
    EXPECT_EQ(found.layer.value_or(-1), each.layer) << each.name;
    EXPECT_TRUE(is_component(found.name)) << found.name;
  }
}

TEST(Component, LayersThatAreNoNumbersAreNone) {
  for (const char* name : {"model.layers.x.weight", "layers.99999999999999999999.w", "layers.-1.w",
                           "layers", "layers.", "h.", "a_decoder_block_x.w"}) {
    EXPECT_FALSE(component_of(name).layer) << name;
  }
}

TEST(Component, OthersAreNone) {
  EXPECT_FALSE(is_component("attn"));
  EXPECT_FALSE(is_component("vision."));
  EXPECT_FALSE(is_component(""));
  EXPECT_TRUE(is_component("program"));
}

}  // namespace
}  // namespace ferry::audit::component_test
