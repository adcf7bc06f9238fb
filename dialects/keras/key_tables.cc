#include "dialects/keras/key_tables.h"

#include <utility>

namespace ferry::converters {
namespace {

using Op = KerasOp;

// -- outside of layers

constexpr KerasRow kEmbeddingAndHead[] = {
    {"layers/reversible_embedding/vars/0", "model.embed_tokens.weight", Op::kCopy, "VD"},
    {kKerasHead, "lm_head.weight", Op::kTranspose, "DV"},
};
constexpr KerasRow kGpt2Outside[] = {
    {"layers/reversible_embedding/vars/0", "transformer.wte.weight", Op::kCopy, "VD"},
    {"layers/position_embedding/vars/0", "transformer.wpe.weight", Op::kCopy, "PD"},
    {"layers/layer_normalization/vars/0", "transformer.ln_f.weight", Op::kCopy, "D"},
    {"layers/layer_normalization/vars/1", "transformer.ln_f.bias", Op::kCopy, "D"},
};
constexpr KerasRow kOptOutside[] = {
    {"layers/token_and_position_embedding/token_embedding/vars/0",
     "model.decoder.embed_tokens.weight", Op::kCopy, "VD"},
    {"layers/token_and_position_embedding/position_embedding/vars/0",
     "model.decoder.embed_positions.weight", Op::kAfterTwoRows, "PD"},
    {"layers/layer_normalization/vars/0", "model.decoder.final_layer_norm.weight", Op::kCopy, "D"},
    {"layers/layer_normalization/vars/1", "model.decoder.final_layer_norm.bias", Op::kCopy, "D"},
};
constexpr KerasRow kGptNeoXOutside[] = {
    {"layers/reversible_embedding/vars/0", "gpt_neox.embed_in.weight", Op::kCopy, "VD"},
    {"layers/layer_normalization/vars/0", "gpt_neox.final_layer_norm.weight", Op::kCopy, "D"},
    {"layers/layer_normalization/vars/1", "gpt_neox.final_layer_norm.bias", Op::kCopy, "D"},
};

// -- Llama and its like

constexpr KerasRow kNorms[] = {
    {"_self_attention_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"_feedforward_layernorm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
};
constexpr KerasRow kAttention[] = {
    {"_self_attention_layer/_query_dense/vars/0", "self_attn.q_proj.weight",
     Op::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/_key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"_self_attention_layer/_value_dense/vars/0", "self_attn.v_proj.weight",
     Op::kMergeLastTranspose, "DKd"},
    {"_self_attention_layer/_output_dense/vars/0", "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
};
constexpr KerasRow kMlp[] = {
    {"_feedforward_gate_dense/vars/0", "mlp.gate_proj.weight", Op::kTranspose, "DM"},
    {"_feedforward_intermediate_dense/vars/0", "mlp.up_proj.weight", Op::kTranspose, "DM"},
    {"_feedforward_output_dense/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
};
constexpr KerasRow kQwen2Biases[] = {
    {"_self_attention_layer/_query_dense/vars/1", "self_attn.q_proj.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/_key_dense/vars/1", "self_attn.k_proj.bias", Op::kFlatten, "Kd"},
    {"_self_attention_layer/_value_dense/vars/1", "self_attn.v_proj.bias", Op::kFlatten, "Kd"},
};
constexpr KerasRow kQwen3Norms[] = {
    {"_self_attention_layer/_query_dense_layer_norm/vars/0", "self_attn.q_norm.weight", Op::kCopy,
     "d"},
    {"_self_attention_layer/_key_dense_layer_norm/vars/0", "self_attn.k_norm.weight", Op::kCopy,
     "d"},
};

constexpr KerasRow kPhi3[] = {
    {"pre_attention_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"attention/query_dense/vars/0", "self_attn.qkv_proj.weight", Op::kMergeLastTranspose, "DHd"},
    {"attention/key_dense/vars/0", "self_attn.qkv_proj.weight", Op::kMergeLastTranspose, "DKd"},
    {"attention/value_dense/vars/0", "self_attn.qkv_proj.weight", Op::kMergeLastTranspose, "DKd"},
    {"attention/output_dense/vars/0", "self_attn.o_proj.weight", Op::kMergeFirstTranspose, "HdD"},
    {"post_attention_layernorm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
    {"feedforward_gate_dense/vars/0", "mlp.gate_up_proj.weight", Op::kTranspose, "DM"},
    {"feedforward_intermediate_dense/vars/0", "mlp.gate_up_proj.weight", Op::kTranspose, "DM"},
    {"feedforward_output_dense/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
};

// The frequencies of RoPE are stored too; families drop them.
constexpr KerasRow kSmolLm3[] = {
    {"input_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"self_attn/q_proj/vars/0", "self_attn.q_proj.weight", Op::kTranspose, "DQ"},
    {"self_attn/k_proj/vars/0", "self_attn.k_proj.weight", Op::kTranspose, "DR"},
    {"self_attn/v_proj/vars/0", "self_attn.v_proj.weight", Op::kTranspose, "DR"},
    {"self_attn/o_proj/vars/0", "self_attn.o_proj.weight", Op::kMergeFirstTranspose, "HdD"},
    {"self_attn/rotary_embedding/vars/0", "self_attn.rotary_emb.inv_freq", Op::kCopy, "f"},
    {"post_attention_layernorm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
    {"mlp/gate_proj/vars/0", "mlp.gate_proj.weight", Op::kTranspose, "DM"},
    {"mlp/gate_proj/vars/1", "mlp.gate_proj.bias", Op::kCopy, "M"},
    {"mlp/up_proj/vars/0", "mlp.up_proj.weight", Op::kTranspose, "DM"},
    {"mlp/up_proj/vars/1", "mlp.up_proj.bias", Op::kCopy, "M"},
    {"mlp/down_proj/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
    {"mlp/down_proj/vars/1", "mlp.down_proj.bias", Op::kCopy, "D"},
};

// -- Gemma

constexpr KerasRow kGemma[] = {
    {"pre_attention_norm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"attention/query_dense/vars/0", "self_attn.q_proj.weight", Op::kSwapLastMergeFirst, "HDd"},
    {"attention/key_dense/vars/0", "self_attn.k_proj.weight", Op::kSwapLastMergeFirst, "KDd"},
    {"attention/value_dense/vars/0", "self_attn.v_proj.weight", Op::kSwapLastMergeFirst, "KDd"},
    {"attention/output_dense/vars/0", "self_attn.o_proj.weight", Op::kMergeFirstTranspose, "HdD"},
    {"gating_ffw/vars/0", "mlp.gate_proj.weight", Op::kTranspose, "DM"},
    {"gating_ffw_2/vars/0", "mlp.up_proj.weight", Op::kTranspose, "DM"},
    {"ffw_linear/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
};
// One path names different norms of Hugging Face in Gemma 1 and in Gemma 2 and 3.
constexpr KerasRow kGemma1Norms[] = {
    {"pre_ffw_norm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
};
constexpr KerasRow kGemma2Norms[] = {
    {"post_attention_norm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
    {"pre_ffw_norm/vars/0", "pre_feedforward_layernorm.weight", Op::kCopy, "D"},
    {"post_ffw_norm/vars/0", "post_feedforward_layernorm.weight", Op::kCopy, "D"},
};
constexpr KerasRow kGemma3Norms[] = {
    {"attention/query_norm/vars/0", "self_attn.q_norm.weight", Op::kCopy, "d"},
    {"attention/key_norm/vars/0", "self_attn.k_norm.weight", Op::kCopy, "d"},
};

// -- experts

// Mixtral and QwenMoe name the projections without an underscore, but for QwenMoe's output.
constexpr KerasRow kPlainQkv[] = {
    {"_self_attention_layer/query_dense/vars/0", "self_attn.q_proj.weight", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"_self_attention_layer/value_dense/vars/0", "self_attn.v_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
};
constexpr KerasRow kMixtral[] = {
    {"_self_attention_layer/output_dense/vars/0", "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
    {"_sparse_moe_block/_sparse_feedforward_gate_dense/vars/0", "mlp.gate.weight", Op::kTranspose,
     "DE"},
    {"_sparse_moe_block/expert_bank/vars/0", "mlp.experts.gate_up_proj", Op::kTransposeEach, "EDX"},
    {"_sparse_moe_block/expert_bank/vars/1", "mlp.experts.gate_up_proj", Op::kTransposeEach, "EDX"},
    {"_sparse_moe_block/expert_bank/vars/2", "mlp.experts.down_proj", Op::kTransposeEach, "EXD"},
};
constexpr KerasRow kQwen2Moe[] = {
    {"_self_attention_layer/query_dense/vars/1", "self_attn.q_proj.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/key_dense/vars/1", "self_attn.k_proj.bias", Op::kFlatten, "Kd"},
    {"_self_attention_layer/value_dense/vars/1", "self_attn.v_proj.bias", Op::kFlatten, "Kd"},
    {"_self_attention_layer/_output_dense/vars/0", "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
    {"mlp/shared_expert_dense/_feedforward_gate_dense/vars/0", "mlp.shared_expert.gate_proj.weight",
     Op::kTranspose, "DS"},
    {"mlp/shared_expert_dense/_feedforward_intermediate_dense/vars/0",
     "mlp.shared_expert.up_proj.weight", Op::kTranspose, "DS"},
    {"mlp/shared_expert_dense/_feedforward_output_dense/vars/0",
     "mlp.shared_expert.down_proj.weight", Op::kTranspose, "SD"},
    {"mlp/shared_expert_gate_dense/vars/0", "mlp.shared_expert_gate.weight", Op::kTranspose, "D1"},
};
constexpr KerasRow kQwenExperts[] = {
    {"mlp/_sparse_feedforward_gate_dense/vars/0", "mlp.gate.weight", Op::kTranspose, "DE"},
    {"mlp/expert_bank/vars/0", "mlp.experts.gate_up_proj", Op::kTransposeEach, "EDY"},
    {"mlp/expert_bank/vars/1", "mlp.experts.down_proj", Op::kTransposeEach, "EXD"},
};
constexpr KerasRow kQwen3MoeMlp[] = {
    {"mlp/_feedforward_gate_dense/vars/0", "mlp.gate_proj.weight", Op::kTranspose, "DM"},
    {"mlp/_feedforward_intermediate_dense/vars/0", "mlp.up_proj.weight", Op::kTranspose, "DM"},
    {"mlp/_feedforward_output_dense/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
};
// The experts are stored as Hugging Face stores them.
constexpr KerasRow kGptOss[] = {
    {"input_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"post_attention_layernorm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
    {"self_attention_layer/query_dense/vars/0", "self_attn.q_proj.weight", Op::kMergeLastTranspose,
     "DHd"},
    {"self_attention_layer/query_dense/vars/1", "self_attn.q_proj.bias", Op::kFlatten, "Hd"},
    {"self_attention_layer/key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"self_attention_layer/key_dense/vars/1", "self_attn.k_proj.bias", Op::kFlatten, "Kd"},
    {"self_attention_layer/value_dense/vars/0", "self_attn.v_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"self_attention_layer/value_dense/vars/1", "self_attn.v_proj.bias", Op::kFlatten, "Kd"},
    {"self_attention_layer/output_dense/vars/0", "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
    {"self_attention_layer/output_dense/vars/1", "self_attn.o_proj.bias", Op::kCopy, "D"},
    {"self_attention_layer/vars/0", "self_attn.sinks", Op::kCopy, "H"},
    {"sparse_moe_block/router/router_dense/vars/0", "mlp.router.weight", Op::kTranspose, "DE"},
    {"sparse_moe_block/router/router_dense/vars/1", "mlp.router.bias", Op::kCopy, "E"},
    {"sparse_moe_block/experts/vars/0", "mlp.experts.gate_up_proj", Op::kCopy, "EDY"},
    {"sparse_moe_block/experts/vars/1", "mlp.experts.gate_up_proj_bias", Op::kCopy, "EY"},
    {"sparse_moe_block/experts/vars/2", "mlp.experts.down_proj", Op::kCopy, "EXD"},
    {"sparse_moe_block/experts/vars/3", "mlp.experts.down_proj_bias", Op::kCopy, "ED"},
};

// -- linear attention

constexpr KerasRow kHybridNorms[] = {
    {"_input_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"_post_attention_layernorm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
};
// A query head is followed by its gate.
constexpr KerasRow kGatedAttention[] = {
    {"_self_attention_layer/_query_dense/vars/0", "self_attn.q_proj.weight",
     Op::kMergeLastTranspose, "DHu"},
    {"_self_attention_layer/_query_norm/vars/0", "self_attn.q_norm.weight", Op::kCopy, "d"},
    {"_self_attention_layer/_key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"_self_attention_layer/_key_norm/vars/0", "self_attn.k_norm.weight", Op::kCopy, "d"},
    {"_self_attention_layer/_value_dense/vars/0", "self_attn.v_proj.weight",
     Op::kMergeLastTranspose, "DKd"},
    {"_self_attention_layer/_output_dense/vars/0", "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
};
constexpr KerasRow kDeltaNet[] = {
    {"_linear_attn/in_proj_qkv/vars/0", "linear_attn.in_proj_qkv.weight", Op::kTranspose, "DC"},
    {"_linear_attn/in_proj_z/vars/0", "linear_attn.in_proj_z.weight", Op::kTranspose, "DW"},
    {"_linear_attn/in_proj_b/vars/0", "linear_attn.in_proj_b.weight", Op::kTranspose, "Dn"},
    {"_linear_attn/in_proj_a/vars/0", "linear_attn.in_proj_a.weight", Op::kTranspose, "Dn"},
    {"_linear_attn/vars/0", "linear_attn.conv1d.weight", Op::kAddMiddle, "Ck"},
    {"_linear_attn/vars/1", "linear_attn.dt_bias", Op::kCopy, "n"},
    {"_linear_attn/vars/2", "linear_attn.A_log", Op::kCopy, "n"},
    {"_linear_attn/norm/vars/0", "linear_attn.norm.weight", Op::kCopy, "w"},
    {"_linear_attn/out_proj/vars/0", "linear_attn.out_proj.weight", Op::kTranspose, "WD"},
};
constexpr KerasRow kHybridMoe[] = {
    {"mlp/_router_gate/vars/0", "mlp.gate.weight", Op::kTranspose, "DE"},
    {"mlp/expert_bank/vars/0", "mlp.experts.gate_up_proj", Op::kTransposeEach, "EDY"},
    {"mlp/expert_bank/vars/1", "mlp.experts.down_proj", Op::kTransposeEach, "EXD"},
    {"mlp/shared_expert/_feedforward_gate_dense/vars/0", "mlp.shared_expert.gate_proj.weight",
     Op::kTranspose, "DS"},
    {"mlp/shared_expert/_feedforward_intermediate_dense/vars/0", "mlp.shared_expert.up_proj.weight",
     Op::kTranspose, "DS"},
    {"mlp/shared_expert/_feedforward_output_dense/vars/0", "mlp.shared_expert.down_proj.weight",
     Op::kTranspose, "SD"},
    {"mlp/_shared_expert_gate/vars/0", "mlp.shared_expert_gate.weight", Op::kTranspose, "D1"},
};

// -- layer norms and biases

// A matrix whose key ends with .T is that of Conv1D transposed: q, k and v are rows of it.
constexpr KerasRow kGpt2[] = {
    {"_self_attention_layer_norm/vars/0", "ln_1.weight", Op::kCopy, "D"},
    {"_self_attention_layer_norm/vars/1", "ln_1.bias", Op::kCopy, "D"},
    {"_self_attention_layer/query_dense/vars/0", "attn.c_attn.weight.T", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/key_dense/vars/0", "attn.c_attn.weight.T", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/value_dense/vars/0", "attn.c_attn.weight.T", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/query_dense/vars/1", "attn.c_attn.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/key_dense/vars/1", "attn.c_attn.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/value_dense/vars/1", "attn.c_attn.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/output_dense/vars/0", "attn.c_proj.weight", Op::kMergeFirst, "HdD"},
    {"_self_attention_layer/output_dense/vars/1", "attn.c_proj.bias", Op::kCopy, "D"},
    {"_feedforward_layer_norm/vars/0", "ln_2.weight", Op::kCopy, "D"},
    {"_feedforward_layer_norm/vars/1", "ln_2.bias", Op::kCopy, "D"},
    {"_feedforward_intermediate_dense/vars/0", "mlp.c_fc.weight", Op::kCopy, "DM"},
    {"_feedforward_intermediate_dense/vars/1", "mlp.c_fc.bias", Op::kCopy, "M"},
    {"_feedforward_output_dense/vars/0", "mlp.c_proj.weight", Op::kCopy, "MD"},
    {"_feedforward_output_dense/vars/1", "mlp.c_proj.bias", Op::kCopy, "D"},
};
constexpr KerasRow kOpt[] = {
    {"_self_attention_layer_norm/vars/0", "self_attn_layer_norm.weight", Op::kCopy, "D"},
    {"_self_attention_layer_norm/vars/1", "self_attn_layer_norm.bias", Op::kCopy, "D"},
    {"_self_attention_layer/query_dense/vars/0", "self_attn.q_proj.weight", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/query_dense/vars/1", "self_attn.q_proj.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/key_dense/vars/1", "self_attn.k_proj.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/value_dense/vars/0", "self_attn.v_proj.weight", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/value_dense/vars/1", "self_attn.v_proj.bias", Op::kFlatten, "Hd"},
    {"_self_attention_layer/output_dense/vars/0", "self_attn.out_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
    {"_self_attention_layer/output_dense/vars/1", "self_attn.out_proj.bias", Op::kCopy, "D"},
    {"_feedforward_layer_norm/vars/0", "final_layer_norm.weight", Op::kCopy, "D"},
    {"_feedforward_layer_norm/vars/1", "final_layer_norm.bias", Op::kCopy, "D"},
    {"_feedforward_intermediate_dense/vars/0", "fc1.weight", Op::kTranspose, "DM"},
    {"_feedforward_intermediate_dense/vars/1", "fc1.bias", Op::kCopy, "M"},
    {"_feedforward_output_dense/vars/0", "fc2.weight", Op::kTranspose, "MD"},
    {"_feedforward_output_dense/vars/1", "fc2.bias", Op::kCopy, "D"},
};
constexpr KerasRow kGptNeoX[] = {
    {"_self_attention_layer_norm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"_self_attention_layer_norm/vars/1", "input_layernorm.bias", Op::kCopy, "D"},
    {"_self_attention_layer/_qkv_dense/vars/0", "attention.query_key_value.weight",
     Op::kMergeLastTranspose, "DHt"},
    {"_self_attention_layer/_qkv_dense/vars/1", "attention.query_key_value.bias", Op::kFlatten,
     "Ht"},
    {"_self_attention_layer/_output_dense/vars/0", "attention.dense.weight", Op::kTranspose, "DD"},
    {"_self_attention_layer/_output_dense/vars/1", "attention.dense.bias", Op::kCopy, "D"},
    {"_feedforward_layer_norm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
    {"_feedforward_layer_norm/vars/1", "post_attention_layernorm.bias", Op::kCopy, "D"},
    {"_feedforward_intermediate_dense/vars/0", "mlp.dense_h_to_4h.weight", Op::kTranspose, "DM"},
    {"_feedforward_intermediate_dense/vars/1", "mlp.dense_h_to_4h.bias", Op::kCopy, "M"},
    {"_feedforward_output_dense/vars/0", "mlp.dense_4h_to_h.weight", Op::kTranspose, "MD"},
    {"_feedforward_output_dense/vars/1", "mlp.dense_4h_to_h.bias", Op::kCopy, "D"},
};

// -- families

constexpr KerasLayerRows kLlamaInside[] = {{kNorms}, {kAttention}, {kMlp}};
constexpr KerasLayerRows kQwen2Inside[] = {{kNorms}, {kAttention}, {kMlp}, {kQwen2Biases}};
constexpr KerasLayerRows kQwen3Inside[] = {{kNorms}, {kAttention}, {kMlp}, {kQwen3Norms}};
constexpr KerasLayerRows kGemma1Inside[] = {{kGemma}, {kGemma1Norms}};
constexpr KerasLayerRows kGemma2Inside[] = {{kGemma}, {kGemma2Norms}};
constexpr KerasLayerRows kGemma3Inside[] = {{kGemma}, {kGemma2Norms}, {kGemma3Norms}};
constexpr KerasLayerRows kPhi3Inside[] = {{kPhi3}};
constexpr KerasLayerRows kSmolLm3Inside[] = {{kSmolLm3}};
constexpr KerasLayerRows kMixtralInside[] = {{kNorms}, {kPlainQkv}, {kMixtral}};
constexpr KerasLayerRows kQwen2MoeInside[] = {{kNorms}, {kPlainQkv}, {kQwen2Moe}, {kQwenExperts}};
constexpr KerasLayerRows kQwen3MoeInside[] = {{kNorms},
                                              {kAttention},
                                              {kQwen3Norms},
                                              {kQwen3MoeMlp, KerasLayer::kDense},
                                              {kQwenExperts, KerasLayer::kExperts}};
constexpr KerasLayerRows kHybridInside[] = {{kHybridNorms},
                                            {kMlp},
                                            {kGatedAttention, KerasLayer::kAttention},
                                            {kDeltaNet, KerasLayer::kLinearAttention}};
constexpr KerasLayerRows kHybridMoeInside[] = {{kHybridNorms},
                                               {kHybridMoe},
                                               {kGatedAttention, KerasLayer::kAttention},
                                               {kDeltaNet, KerasLayer::kLinearAttention}};
constexpr KerasLayerRows kGptOssInside[] = {{kGptOss}};
constexpr KerasLayerRows kGpt2Inside[] = {{kGpt2}};
constexpr KerasLayerRows kOptInside[] = {{kOpt}};
constexpr KerasLayerRows kGptNeoXInside[] = {{kGptNeoX}};

constexpr std::string_view kQwen35Vision = "layers/qwen3_5_vision_encoder/";
constexpr std::string_view kModelLayers = "model.layers.";

constexpr KerasFamily kFamilies[] = {
    {"llama", "llama_transformer_decoder", kModelLayers, "llama_layer_norm", kEmbeddingAndHead,
     kLlamaInside},
    {"qwen2", "qwen_transformer_decoder", kModelLayers, "qwen_layer_norm", kEmbeddingAndHead,
     kQwen2Inside},
    {"qwen3", "qwen3_transformer_decoder", kModelLayers, "qwen3_layer_norm", kEmbeddingAndHead,
     kQwen3Inside},
    {"gemma", "gemma_decoder_block", kModelLayers, "rms_normalization", kEmbeddingAndHead,
     kGemma1Inside},
    {"gemma2", "gemma_decoder_block", kModelLayers, "rms_normalization", kEmbeddingAndHead,
     kGemma2Inside},
    {"gemma3_text", "gemma3_decoder_block", kModelLayers, "rms_normalization", kEmbeddingAndHead,
     kGemma3Inside},
    {"mistral", "mistral_transformer_decoder", kModelLayers, "mistral_layer_normalization",
     kEmbeddingAndHead, kLlamaInside},
    {"phi3", "phi3_decoder", kModelLayers, "phi3_layer_norm", kEmbeddingAndHead, kPhi3Inside},
    {"smollm3", "smol_lm3_decoder_layer", kModelLayers, "rms_normalization", kEmbeddingAndHead,
     kSmolLm3Inside},
    {"mixtral", "mixtral_transformer_decoder", kModelLayers, "mixtral_layer_normalization",
     kEmbeddingAndHead, kMixtralInside},
    {"qwen2_moe", "qwen_moe_transformer_decoder", kModelLayers, "qwen_layer_norm",
     kEmbeddingAndHead, kQwen2MoeInside},
    {"qwen3_moe", "qwen3_moe_transformer_decoder", kModelLayers, "qwen3_moe_layer_norm",
     kEmbeddingAndHead, kQwen3MoeInside},
    {"gpt_oss", "gpt_oss_transformer_decoder", kModelLayers, "gpt_oss_layer_normalization",
     kEmbeddingAndHead, kGptOssInside},
    {"qwen3_5_text", "qwen3_5_transformer_decoder", kModelLayers, "qwen3_5_layer_norm",
     kEmbeddingAndHead, kHybridInside, kQwen35Vision},
    {"qwen3_5_moe_text", "qwen3_5_moe_transformer_decoder", kModelLayers, "qwen3_5_layer_norm",
     kEmbeddingAndHead, kHybridMoeInside, kQwen35Vision},
    {"gpt2", "transformer_decoder", "transformer.h.", "", kGpt2Outside, kGpt2Inside},
    {"opt", "transformer_decoder", "model.decoder.layers.", "", kOptOutside, kOptInside},
    {"gpt_neox", "gpt_neo_x_decoder", "gpt_neox.layers.", "", kGptNeoXOutside, kGptNeoXInside},
};

}  // namespace

std::span<const KerasFamily> keras_families() { return kFamilies; }

bool is_keras_layer(KerasLayer kind, const ModelConfig& config, int64_t layer) {
  const bool experts = config.has_experts(layer);
  const auto at = static_cast<size_t>(layer);
  const bool linear =
      at < config.layer_types.size() && config.layer_types[at] == LayerType::kLinearAttention;
  switch (kind) {
    case KerasLayer::kAny:
      return true;
    case KerasLayer::kDense:
      return !experts;
    case KerasLayer::kExperts:
      return experts;
    case KerasLayer::kAttention:
      return !linear;
    case KerasLayer::kLinearAttention:
      return linear;
  }
  return false;
}

int64_t keras_dim(char letter, const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  const LinearAttentionConfig& linear = config.linear;
  const std::pair<char, int64_t> sizes[] = {{'V', config.vocab_size},
                                            {'D', config.hidden_size},
                                            {'M', config.intermediate_size},
                                            {'P', config.max_positions},
                                            {'H', config.num_heads},
                                            {'K', config.num_kv_heads},
                                            {'d', config.head_dim},
                                            {'f', config.head_dim / 2},
                                            {'u', 2 * config.head_dim},
                                            {'t', 3 * config.head_dim},
                                            {'Q', config.q_size()},
                                            {'R', config.kv_size()},
                                            {'E', moe.experts},
                                            {'X', moe.expert_size},
                                            {'Y', 2 * moe.expert_size},
                                            {'S', moe.shared_size},
                                            {'C', linear.conv_channels()},
                                            {'k', linear.conv_kernel},
                                            {'n', linear.value_heads},
                                            {'w', linear.value_dim},
                                            {'W', linear.value_size()},
                                            {'1', 1}};
  for (const auto& [name, size] : sizes) {
    if (name == letter) return size;
  }
  return 0;
}

}  // namespace ferry::converters
