#include "converters/families/keras_tables.h"

namespace ferry::converters::keras_tables {
namespace {

using Op = KerasOp;

constexpr KerasRow kEmbeddingAndHeadRows[] = {
    {"layers/reversible_embedding/vars/0", "model.embed_tokens.weight", Op::kCopy, "VD"},
    {"layers/reversible_embedding/vars/1", "lm_head.weight", Op::kTranspose, "DV"},
};
constexpr KerasRow kNormsRows[] = {
    {"_self_attention_layernorm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"_feedforward_layernorm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
};
constexpr KerasRow kAttentionRows[] = {
    {"_self_attention_layer/_query_dense/vars/0", "self_attn.q_proj.weight",
     Op::kMergeLastTranspose, "DHd"},
    {"_self_attention_layer/_key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"_self_attention_layer/_value_dense/vars/0", "self_attn.v_proj.weight",
     Op::kMergeLastTranspose, "DKd"},
    {"_self_attention_layer/_output_dense/vars/0", "self_attn.o_proj.weight",
     Op::kMergeFirstTranspose, "HdD"},
};
constexpr KerasRow kMlpRows[] = {
    {"_feedforward_gate_dense/vars/0", "mlp.gate_proj.weight", Op::kTranspose, "DM"},
    {"_feedforward_intermediate_dense/vars/0", "mlp.up_proj.weight", Op::kTranspose, "DM"},
    {"_feedforward_output_dense/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
};
constexpr KerasRow kQwen3NormsRows[] = {
    {"_self_attention_layer/_query_dense_layer_norm/vars/0", "self_attn.q_norm.weight", Op::kCopy,
     "d"},
    {"_self_attention_layer/_key_dense_layer_norm/vars/0", "self_attn.k_norm.weight", Op::kCopy,
     "d"},
};
constexpr KerasRow kGemmaRows[] = {
    {"pre_attention_norm/vars/0", "input_layernorm.weight", Op::kCopy, "D"},
    {"attention/query_dense/vars/0", "self_attn.q_proj.weight", Op::kSwapLastMergeFirst, "HDd"},
    {"attention/key_dense/vars/0", "self_attn.k_proj.weight", Op::kSwapLastMergeFirst, "KDd"},
    {"attention/value_dense/vars/0", "self_attn.v_proj.weight", Op::kSwapLastMergeFirst, "KDd"},
    {"attention/output_dense/vars/0", "self_attn.o_proj.weight", Op::kMergeFirstTranspose, "HdD"},
    {"gating_ffw/vars/0", "mlp.gate_proj.weight", Op::kTranspose, "DM"},
    {"gating_ffw_2/vars/0", "mlp.up_proj.weight", Op::kTranspose, "DM"},
    {"ffw_linear/vars/0", "mlp.down_proj.weight", Op::kTranspose, "MD"},
};
constexpr KerasRow kGemma2NormsRows[] = {
    {"post_attention_norm/vars/0", "post_attention_layernorm.weight", Op::kCopy, "D"},
    {"pre_ffw_norm/vars/0", "pre_feedforward_layernorm.weight", Op::kCopy, "D"},
    {"post_ffw_norm/vars/0", "post_feedforward_layernorm.weight", Op::kCopy, "D"},
};
constexpr KerasRow kPlainQkvRows[] = {
    {"_self_attention_layer/query_dense/vars/0", "self_attn.q_proj.weight", Op::kMergeLastTranspose,
     "DHd"},
    {"_self_attention_layer/key_dense/vars/0", "self_attn.k_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
    {"_self_attention_layer/value_dense/vars/0", "self_attn.v_proj.weight", Op::kMergeLastTranspose,
     "DKd"},
};
constexpr KerasRow kQwenExpertsRows[] = {
    {"mlp/_sparse_feedforward_gate_dense/vars/0", "mlp.gate.weight", Op::kTranspose, "DE"},
    {"mlp/expert_bank/vars/0", "mlp.experts.gate_up_proj", Op::kTransposeEach, "EDY"},
    {"mlp/expert_bank/vars/1", "mlp.experts.down_proj", Op::kTransposeEach, "EXD"},
};

}  // namespace

constinit const KerasRows kKerasEmbeddingAndHead = kEmbeddingAndHeadRows;
constinit const KerasRows kKerasNorms = kNormsRows;
constinit const KerasRows kKerasAttention = kAttentionRows;
constinit const KerasRows kKerasMlp = kMlpRows;
constinit const KerasRows kKerasQwen3Norms = kQwen3NormsRows;
constinit const KerasRows kKerasGemma = kGemmaRows;
constinit const KerasRows kKerasGemma2Norms = kGemma2NormsRows;
constinit const KerasRows kKerasPlainQkv = kPlainQkvRows;
constinit const KerasRows kKerasExperts = kQwenExpertsRows;

}  // namespace ferry::converters::keras_tables
