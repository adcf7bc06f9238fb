// Mixtral: Mistral with routed experts in place of the MLP. The scores of the chosen ones are
// always normalised. Source: transformers, models/mixtral/modeling_mixtral.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mixtral {
namespace {

using namespace gguf_tables;
using namespace keras_tables;

constexpr GgufName kMixtralExpertsGguf[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.block_sparse_moe.gate.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w1.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w2.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w3.weight",
     kStacked},
};

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 block_sparse_rules(prefix, config), expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {});
}

constexpr KerasRow kKerasMoe[] = {
    {"_self_attention_layer/output_dense/vars/0", "self_attn.o_proj.weight",
     KerasOp::kMergeFirstTranspose, "HdD"},
    {"_sparse_moe_block/_sparse_feedforward_gate_dense/vars/0", "mlp.gate.weight",
     KerasOp::kTranspose, "DE"},
    {"_sparse_moe_block/expert_bank/vars/0", "mlp.experts.gate_up_proj", KerasOp::kTransposeEach,
     "EDX"},
    {"_sparse_moe_block/expert_bank/vars/1", "mlp.experts.gate_up_proj", KerasOp::kTransposeEach,
     "EDX"},
    {"_sparse_moe_block/expert_bank/vars/2", "mlp.experts.down_proj", KerasOp::kTransposeEach,
     "EXD"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "mixtral",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                               "rope_theta": 1000000.0, "num_experts": 8,
                               "num_experts_per_tok": 2, "moe_intermediate_size": 14336})",
               // The class maps the second name of the number of experts to the first.
               .names = {{"num_experts", {"num_local_experts", "num_experts"}},
                         {"moe_intermediate_size", {"intermediate_size"}}},
               .window = WindowRule::kAll,
               .experts = ExpertRule::kAll}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Mixtral", score_head}},
    .gguf = {{.name = "llama",
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMixtralExpertsGguf,
                         kExperts, kFusedExperts},
              .normed_experts = true,
              .sign = GgufSign::kExperts,
              .keys = llama_keys(),
              .rope_factors = true}},
    .keras = {{.classes = {"MixtralBackbone"},
               .decoder = "mixtral_transformer_decoder",
               .final_norm = "mixtral_layer_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms}, {kKerasPlainQkv}, {kKerasMoe}}}}};

}  // namespace ferry::converters::families::mixtral
