#include <algorithm>

#include "converters/keys/row_layouts.h"
#include "dialects/gguf/model/names.h"

namespace ferry::converters::gguf_names {
namespace {

// The file has q, k and v of all heads, one after the other; a checkpoint has them head by head.
constexpr GgufForm kByHead = {.order =
                                  [](const ModelConfig& c) {
                                    StridedPiece rows;
                                    add_axis(rows, {c.num_heads, c.head_dim});
                                    add_axis(rows, {3, c.num_heads * c.head_dim});
                                    add_axis(rows, {c.head_dim, 1});
                                    return std::vector<StridedPiece>{rows};
                                  },
                              .written =
                                  [](const ModelConfig& c) {
                                    StridedPiece rows;
                                    add_axis(rows, {3, c.head_dim});
                                    add_axis(rows, {c.num_heads, 3 * c.head_dim});
                                    add_axis(rows, {c.head_dim, 1});
                                    return std::vector<StridedPiece>{rows};
                                  }};

constexpr GgufName kNormBiasesRows[] = {
    {"output_norm.bias", "model.norm.bias"},
    {"blk.{i}.attn_norm.bias", "model.layers.{i}.input_layernorm.bias"},
    {"blk.{i}.ffn_norm.bias", "model.layers.{i}.post_attention_layernorm.bias"},
};

constexpr GgufName kSharedExpertsRows[] = {
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.mlp.gate.e_score_correction_bias"},
    {"blk.{i}.ffn_gate_shexp.weight", "model.layers.{i}.mlp.shared_experts.gate_proj.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.mlp.shared_experts.up_proj.weight"},
    {"blk.{i}.ffn_down_shexp.weight", "model.layers.{i}.mlp.shared_experts.down_proj.weight"},
    {"blk.{i}.ffn_gate_shexp.bias", "model.layers.{i}.mlp.shared_experts.gate_proj.bias"},
    {"blk.{i}.ffn_up_shexp.bias", "model.layers.{i}.mlp.shared_experts.up_proj.bias"},
    {"blk.{i}.ffn_down_shexp.bias", "model.layers.{i}.mlp.shared_experts.down_proj.bias"},
};

// kv_b_proj has the rows of each head's keys, then those of its values. Files have the keys
// transposed.
struct LatentHeads {
  explicit LatentHeads(const ModelConfig& c)
      : plain(c.number("qk_nope_head_dim")),
        value(c.number("v_head_dim")),
        rank(c.number("kv_lora_rank")) {}
  int64_t row() const { return plain + value; }
  int64_t plain, value, rank;
};

constexpr GgufForm kLatentKeys = {.written =
                                      [](const ModelConfig& c) {
                                        const LatentHeads s(c);
                                        StridedPiece elements;
                                        add_axis(elements, {c.num_heads, s.row() * s.rank});
                                        add_axis(elements, {s.rank, 1});
                                        add_axis(elements, {s.plain, s.rank});
                                        return std::vector<StridedPiece>{elements};
                                      },
                                  .written_shape =
                                      [](const ModelConfig& c) {
                                        const LatentHeads s(c);
                                        return std::vector{c.num_heads, s.rank, s.plain};
                                      }};
constexpr GgufForm kLatentValues = {.written =
                                        [](const ModelConfig& c) {
                                          const LatentHeads s(c);
                                          StridedPiece elements{.offset = s.plain * s.rank};
                                          add_axis(elements, {c.num_heads, s.row() * s.rank});
                                          add_axis(elements, {s.value * s.rank, 1});
                                          return std::vector<StridedPiece>{elements};
                                        },
                                    .written_shape =
                                        [](const ModelConfig& c) {
                                          const LatentHeads s(c);
                                          return std::vector{c.num_heads, s.value, s.rank};
                                        }};
constexpr GgufForm kUnsplit = {.read_only = true};

constexpr GgufName kLatentAttentionRows[] = {
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_q_a.weight", "model.layers.{i}.self_attn.q_a_proj.weight"},
    {"blk.{i}.attn_q_a.bias", "model.layers.{i}.self_attn.q_a_proj.bias"},
    {"blk.{i}.attn_q_a_norm.weight", "model.layers.{i}.self_attn.q_a_layernorm.weight"},
    {"blk.{i}.attn_q_b.weight", "model.layers.{i}.self_attn.q_b_proj.weight"},
    {"blk.{i}.attn_kv_a_mqa.weight", "model.layers.{i}.self_attn.kv_a_proj_with_mqa.weight"},
    {"blk.{i}.attn_kv_a_mqa.bias", "model.layers.{i}.self_attn.kv_a_proj_with_mqa.bias"},
    {"blk.{i}.attn_kv_a_norm.weight", "model.layers.{i}.self_attn.kv_a_layernorm.weight"},
    {"blk.{i}.attn_kv_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight", kUnsplit},
    {"blk.{i}.attn_k_b.weight", "model.layers.{i}.self_attn.k_b_proj.weight"},
    {"blk.{i}.attn_v_b.weight", "model.layers.{i}.self_attn.v_b_proj.weight"},
    {"blk.{i}.attn_k_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight", kLatentKeys},
    {"blk.{i}.attn_v_b.weight", "model.layers.{i}.self_attn.kv_b_proj.weight", kLatentValues},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.attn_output.bias", "model.layers.{i}.self_attn.o_proj.bias"},
};

constexpr GgufName kGptOssRows[] = {
    {"blk.{i}.attn_sinks.weight", "model.layers.{i}.self_attn.sinks"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.router.weight"},
    {"blk.{i}.ffn_gate_inp.bias", "model.layers.{i}.mlp.router.bias"},
    {"blk.{i}.ffn_gate_exps.bias", "model.layers.{i}.mlp.experts.gate_proj_bias"},
    {"blk.{i}.ffn_up_exps.bias", "model.layers.{i}.mlp.experts.up_proj_bias"},
    {"blk.{i}.ffn_down_exps.bias", "model.layers.{i}.mlp.experts.down_proj_bias"},
};

constexpr GgufForm kOfExperts = {.models = GgufForm::Models::kWithExperts};
constexpr GgufForm kOfMlps = {.models = GgufForm::Models::kWithoutExperts};

// At last weights of the model, whose gate and up checkpoints have in one tensor.
constexpr GgufName kGraniteExpertsRows[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.block_sparse_moe.router.layer.weight"},
    {"blk.{i}.ffn_gate_exps.weight",
     "model.layers.{i}.block_sparse_moe.experts.{e}.gate_proj.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.up_proj.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight",
     "model.layers.{i}.block_sparse_moe.experts.{e}.down_proj.weight", kStacked},
    {"blk.{i}.ffn_gate_shexp.weight", "model.layers.{i}.shared_mlp.gate_proj.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.shared_mlp.up_proj.weight"},
    {"blk.{i}.ffn_down_shexp.weight", "model.layers.{i}.shared_mlp.output_linear.weight",
     kOfExperts},
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.shared_mlp.gate_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.shared_mlp.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.shared_mlp.output_linear.weight", kOfMlps},
    {"blk.{i}.ffn_gate_shexp.weight", "layers.{i}.feed_forward.shared.w1.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "layers.{i}.feed_forward.shared.w3.weight"},
    {"blk.{i}.ffn_gate.weight", "layers.{i}.feed_forward.w1.weight"},
    {"blk.{i}.ffn_up.weight", "layers.{i}.feed_forward.w3.weight"},
};

constexpr GgufName kMixtralExpertsRows[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.block_sparse_moe.gate.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w1.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w2.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.block_sparse_moe.experts.{e}.w3.weight",
     kStacked},
};

constexpr auto kHeadColumn = [](const ModelConfig& c) {
  return std::vector<int64_t>{c.number("mamba_n_heads"), 1};
};
constexpr GgufForm kHeadValues = {.written_shape = kHeadColumn, .shape = GgufForm::Shape::kFlat};
constexpr GgufForm kHeadNegExp = {.written_shape = kHeadColumn,
                                  .shape = GgufForm::Shape::kFlat,
                                  .values = GgufForm::Values::kNegExp};
constexpr GgufForm kGroupRows = {
    .written_shape =
        [](const ModelConfig& c) {
          const int64_t groups = std::max<int64_t>(1, c.number("mamba_n_groups"));
          return std::vector{groups, c.number("mamba_n_heads") * c.number("mamba_d_head") / groups};
        },
    .shape = GgufForm::Shape::kFlat};

constexpr GgufName kMambaRows[] = {
    {"blk.{i}.ssm_a", "model.layers.{i}.mamba.A_log", kHeadNegExp},
    {"blk.{i}.ssm_d", "model.layers.{i}.mamba.D", kHeadValues},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.mamba.dt_bias"},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.mamba.norm.weight", kGroupRows},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.mamba.conv1d.weight", kConv},
    {"blk.{i}.ssm_conv1d.bias", "model.layers.{i}.mamba.conv1d.bias"},
    {"blk.{i}.ssm_in.weight", "model.layers.{i}.mamba.in_proj.weight"},
    {"blk.{i}.ssm_in.bias", "model.layers.{i}.mamba.in_proj.bias"},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.mamba.out_proj.weight"},
    {"blk.{i}.ssm_out.bias", "model.layers.{i}.mamba.out_proj.bias"},
};

constexpr GgufName kLfm2ExpertsRows[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.feed_forward.gate.weight"},
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.feed_forward.expert_bias"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.w1.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.w2.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.w3.weight", kStacked},
};

constexpr GgufName kGlm4NormsRows[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_self_attn_layernorm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight"},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_mlp_layernorm.weight"},
};

constexpr GgufForm kHeadNorms = {.shape = GgufForm::Shape::kHeads};

constexpr GgufName kStableLmRows[] = {
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.q_layernorm.norms.{e}.weight",
     kHeadNorms},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.k_layernorm.norms.{e}.weight",
     kHeadNorms},
};

constexpr GgufName kHunyuanRows[] = {
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.query_layernorm.weight"},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.key_layernorm.weight"},
};

constexpr GgufName kStarcoder2Rows[] = {
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.c_fc.weight"},
    {"blk.{i}.ffn_up.bias", "model.layers.{i}.mlp.c_fc.bias"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.c_proj.weight"},
    {"blk.{i}.ffn_down.bias", "model.layers.{i}.mlp.c_proj.bias"},
};

constexpr GgufForm kSingleQkv = {.read_only = true, .shape = GgufForm::Shape::kQkv};

constexpr GgufName kPhi2Rows[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.final_layernorm.weight"},
    {"output_norm.bias", "model.final_layernorm.bias"},
    {"output.weight", "lm_head.weight"},
    {"output.bias", "lm_head.bias"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight"},
    {"blk.{i}.attn_norm.bias", "model.layers.{i}.input_layernorm.bias"},
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"},
    {"blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias"},
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"},
    {"blk.{i}.attn_v.bias", "model.layers.{i}.self_attn.v_proj.bias"},
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.self_attn.{p}_proj.weight", kSingleQkv},
    {"blk.{i}.attn_qkv.bias", "model.layers.{i}.self_attn.{p}_proj.bias", kSingleQkv},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.dense.weight"},
    {"blk.{i}.attn_output.bias", "model.layers.{i}.self_attn.dense.bias"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.fc1.weight"},
    {"blk.{i}.ffn_up.bias", "model.layers.{i}.mlp.fc1.bias"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.fc2.weight"},
    {"blk.{i}.ffn_down.bias", "model.layers.{i}.mlp.fc2.bias"},
};

// Matrices are (out, in), where a checkpoint has (in, out).
constexpr GgufName kGpt2Rows[] = {
    {"token_embd.weight", "transformer.wte.weight"},
    {"position_embd.weight", "transformer.wpe.weight"},
    {"output.weight", "lm_head.weight"},
    {"output_norm.weight", "transformer.ln_f.weight"},
    {"output_norm.bias", "transformer.ln_f.bias"},
    {"blk.{i}.attn_norm.weight", "transformer.h.{i}.ln_1.weight"},
    {"blk.{i}.attn_norm.bias", "transformer.h.{i}.ln_1.bias"},
    {"blk.{i}.ffn_norm.weight", "transformer.h.{i}.ln_2.weight"},
    {"blk.{i}.ffn_norm.bias", "transformer.h.{i}.ln_2.bias"},
    {"blk.{i}.attn_qkv.weight", "transformer.h.{i}.attn.c_attn.weight.T"},
    {"blk.{i}.attn_qkv.bias", "transformer.h.{i}.attn.c_attn.bias"},
    {"blk.{i}.attn_output.weight", "transformer.h.{i}.attn.c_proj.weight.T"},
    {"blk.{i}.attn_output.bias", "transformer.h.{i}.attn.c_proj.bias"},
    {"blk.{i}.ffn_up.weight", "transformer.h.{i}.mlp.c_fc.weight.T"},
    {"blk.{i}.ffn_up.bias", "transformer.h.{i}.mlp.c_fc.bias"},
    {"blk.{i}.ffn_down.weight", "transformer.h.{i}.mlp.c_proj.weight.T"},
    {"blk.{i}.ffn_down.bias", "transformer.h.{i}.mlp.c_proj.bias"},
};

constexpr GgufName kGptNeoXRows[] = {
    {"token_embd.weight", "gpt_neox.embed_in.weight"},
    {"output.weight", "embed_out.weight"},
    {"output_norm.weight", "gpt_neox.final_layer_norm.weight"},
    {"output_norm.bias", "gpt_neox.final_layer_norm.bias"},
    {"blk.{i}.attn_norm.weight", "gpt_neox.layers.{i}.input_layernorm.weight"},
    {"blk.{i}.attn_norm.bias", "gpt_neox.layers.{i}.input_layernorm.bias"},
    {"blk.{i}.ffn_norm.weight", "gpt_neox.layers.{i}.post_attention_layernorm.weight"},
    {"blk.{i}.ffn_norm.bias", "gpt_neox.layers.{i}.post_attention_layernorm.bias"},
    {"blk.{i}.attn_qkv.weight", "gpt_neox.layers.{i}.attention.query_key_value.weight", kByHead},
    {"blk.{i}.attn_qkv.bias", "gpt_neox.layers.{i}.attention.query_key_value.bias", kByHead},
    {"blk.{i}.attn_output.weight", "gpt_neox.layers.{i}.attention.dense.weight"},
    {"blk.{i}.attn_output.bias", "gpt_neox.layers.{i}.attention.dense.bias"},
    {"blk.{i}.ffn_up.weight", "gpt_neox.layers.{i}.mlp.dense_h_to_4h.weight"},
    {"blk.{i}.ffn_up.bias", "gpt_neox.layers.{i}.mlp.dense_h_to_4h.bias"},
    {"blk.{i}.ffn_down.weight", "gpt_neox.layers.{i}.mlp.dense_4h_to_h.weight"},
    {"blk.{i}.ffn_down.bias", "gpt_neox.layers.{i}.mlp.dense_4h_to_h.bias"},
};

}  // namespace

constinit const GgufNames kNormBiases = kNormBiasesRows;
constinit const GgufNames kSharedExperts = kSharedExpertsRows;
constinit const GgufNames kLatentAttention = kLatentAttentionRows;
constinit const GgufNames kGptOss = kGptOssRows;
constinit const GgufNames kGraniteExperts = kGraniteExpertsRows;
constinit const GgufNames kMixtralExperts = kMixtralExpertsRows;
constinit const GgufNames kMamba = kMambaRows;
constinit const GgufNames kLfm2Experts = kLfm2ExpertsRows;
constinit const GgufNames kGlm4Norms = kGlm4NormsRows;
constinit const GgufNames kStableLm = kStableLmRows;
constinit const GgufNames kHunyuan = kHunyuanRows;
constinit const GgufNames kStarcoder2 = kStarcoder2Rows;
constinit const GgufNames kPhi2 = kPhi2Rows;
constinit const GgufNames kGpt2 = kGpt2Rows;
constinit const GgufNames kGptNeoX = kGptNeoXRows;

}  // namespace ferry::converters::gguf_names
