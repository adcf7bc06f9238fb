#include "converters/families/gguf_tables.h"

#include <algorithm>

#include "converters/keys/row_layouts.h"

namespace ferry::converters::gguf_tables {
namespace {

using enum GgufKey;

template <typename List = KeyOrder>
List with(List list, const List& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

constexpr auto kHeadColumn = [](const ModelConfig& c) {
  return std::vector<int64_t>{c.mamba.heads, 1};
};
constexpr GgufName kBertRows[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
    {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
    {"blk.{i}.attn_q.weight", "encoder.layer.{i}.attention.self.query.weight"},
    {"blk.{i}.attn_q.bias", "encoder.layer.{i}.attention.self.query.bias"},
    {"blk.{i}.attn_k.weight", "encoder.layer.{i}.attention.self.key.weight"},
    {"blk.{i}.attn_k.bias", "encoder.layer.{i}.attention.self.key.bias"},
    {"blk.{i}.attn_v.weight", "encoder.layer.{i}.attention.self.value.weight"},
    {"blk.{i}.attn_v.bias", "encoder.layer.{i}.attention.self.value.bias"},
    {"blk.{i}.attn_output.weight", "encoder.layer.{i}.attention.output.dense.weight"},
    {"blk.{i}.attn_output.bias", "encoder.layer.{i}.attention.output.dense.bias"},
    {"blk.{i}.attn_output_norm.weight", "encoder.layer.{i}.attention.output.LayerNorm.weight"},
    {"blk.{i}.attn_output_norm.bias", "encoder.layer.{i}.attention.output.LayerNorm.bias"},
    {"blk.{i}.ffn_up.weight", "encoder.layer.{i}.intermediate.dense.weight"},
    {"blk.{i}.ffn_up.bias", "encoder.layer.{i}.intermediate.dense.bias"},
    {"blk.{i}.ffn_down.weight", "encoder.layer.{i}.output.dense.weight"},
    {"blk.{i}.ffn_down.bias", "encoder.layer.{i}.output.dense.bias"},
    {"blk.{i}.layer_output_norm.weight", "encoder.layer.{i}.output.LayerNorm.weight"},
    {"blk.{i}.layer_output_norm.bias", "encoder.layer.{i}.output.LayerNorm.bias"},
};

constexpr GgufForm kOneRow = {.shape = GgufForm::Shape::kOneRow};

// In the file, row 2j + s of each head is row s * dim / 2 + j of the checkpoint.
std::vector<StridedPiece> halves_to_pairs(int64_t heads, int64_t dim) {
  StridedPiece rows;
  add_axis(rows, {heads, dim});
  add_axis(rows, {dim / 2, 1});
  add_axis(rows, {2, dim / 2});
  return {rows};
}

// The file has the rows of each head in rotation pairs.
constexpr GgufForm kRopeQuery = {
    .order =
        [](const ModelConfig& c) { return pairs_to_halves(c.num_heads, c.head_dim, c.head_dim); },
    .written = [](const ModelConfig& c) { return halves_to_pairs(c.num_heads, c.head_dim); }};
constexpr GgufForm kRopeKey = {
    .order =
        [](const ModelConfig& c) {
          return pairs_to_halves(c.num_kv_heads, c.head_dim, c.head_dim);
        },
    .written = [](const ModelConfig& c) { return halves_to_pairs(c.num_kv_heads, c.head_dim); }};

// V heads of `dim` rows from row `from` on. The file has them tiled over the key heads: its head
// t * nk + k is head k * r + t, with r = nv / nk.
std::vector<StridedPiece> grouped_heads(const LinearAttentionConfig& c, int64_t from, int64_t dim) {
  StridedPiece heads{.offset = from};
  add_axis(heads, {c.key_heads, dim});
  add_axis(heads, {c.groups(), c.key_heads * dim});
  add_axis(heads, {dim, 1});
  const StridedPiece pieces[] = {run_piece(0, 0, from), std::move(heads)};
  return folded(pieces);
}

// The reverse of the above: head k * r + t of the checkpoint is head t * nk + k of the file.
std::vector<StridedPiece> tiled_heads(const LinearAttentionConfig& c, int64_t from, int64_t dim) {
  StridedPiece heads{.offset = from};
  add_axis(heads, {c.groups(), dim});
  add_axis(heads, {c.key_heads, c.groups() * dim});
  add_axis(heads, {dim, 1});
  const StridedPiece pieces[] = {run_piece(0, 0, from), std::move(heads)};
  return folded(pieces);
}

constexpr GgufOrder kValueDims = [](const ModelConfig& c) {
  return grouped_heads(c.linear, 0, c.linear.value_dim);
};
constexpr GgufOrder kTiledValueDims = [](const ModelConfig& c) {
  return tiled_heads(c.linear, 0, c.linear.value_dim);
};
constexpr GgufOrder kQkvDims = [](const ModelConfig& c) {  // rows of q and k come first
  return grouped_heads(c.linear, 2 * c.linear.key_size(), c.linear.value_dim);
};
constexpr GgufOrder kTiledQkvDims = [](const ModelConfig& c) {
  return tiled_heads(c.linear, 2 * c.linear.key_size(), c.linear.value_dim);
};
constexpr GgufOrder kGroupedHeads = [](const ModelConfig& c) {
  return grouped_heads(c.linear, 0, 1);
};
constexpr GgufOrder kTiledHeads = [](const ModelConfig& c) { return tiled_heads(c.linear, 0, 1); };

constexpr GgufForm kValueRows = {.order = kValueDims, .written = kTiledValueDims};
constexpr GgufForm kValueColumns = {
    .order = kValueDims, .written = kTiledValueDims, .of_columns = true};
constexpr GgufForm kQkvRows = {.order = kQkvDims, .written = kTiledQkvDims};
constexpr GgufForm kQkvConv = {
    .order = kQkvDims, .written = kTiledQkvDims, .shape = GgufForm::Shape::kChannelAxis};
constexpr GgufForm kValueHeads = {.order = kGroupedHeads, .written = kTiledHeads};
constexpr GgufForm kValueHeadsNegExp = {
    .order = kGroupedHeads, .written = kTiledHeads, .values = GgufForm::Values::kNegExp};

// The checkpoint has the rows of q, k, v and z of one key head after the other. The file has all q,
// all k and all v in one tensor, and all z in another one, the gate.
constexpr GgufForm kPackedInput = {
    .order =
        [](const ModelConfig& config) {
          const LinearAttentionConfig& c = config.linear;
          const int64_t key = c.key_dim;
          const int64_t value = c.groups() * c.value_dim;
          std::vector<StridedPiece> rows;
          for (int64_t head = 0; head < c.key_heads; ++head) {
            rows.push_back(run_piece(0, head * key, key));
            rows.push_back(run_piece(0, c.key_size() + head * key, key));
            rows.push_back(run_piece(0, 2 * c.key_size() + head * value, value));
            rows.push_back(run_piece(0, c.conv_channels() + head * value, value));
          }
          return rows;
        },
    .written = [](const ModelConfig& c) { return qkv_rows(c.linear, PackedLayout::kInterleaved); },
    .with_gate = true};
constexpr GgufForm kPackedGate = {.written =
                                      [](const ModelConfig& c) {
                                        return qkvz_rows(c.linear, PackedLayout::kInterleaved,
                                                         QkvzPart::kGate);
                                      },
                                  .is_part = true};

constexpr GgufName kFrameRows[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight", kNorm},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight", kNorm},
};

constexpr GgufName kMlpRows[] = {
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.mlp.gate_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
    {"blk.{i}.ffn_gate.bias", "model.layers.{i}.mlp.gate_proj.bias"},
    {"blk.{i}.ffn_up.bias", "model.layers.{i}.mlp.up_proj.bias"},
    {"blk.{i}.ffn_down.bias", "model.layers.{i}.mlp.down_proj.bias"},
};

// Files store stacks of experts in the order of these rows.
constexpr GgufName kExpertsRows[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.gate.weight"},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.mlp.experts.{e}.down_proj.weight", kStacked},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.mlp.experts.{e}.gate_proj.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.mlp.experts.{e}.up_proj.weight", kStacked},
    {"blk.{i}.ffn_gate_inp_shexp.weight", "model.layers.{i}.mlp.shared_expert_gate.weight",
     kOneRow},
    {"blk.{i}.ffn_gate_shexp.weight", "model.layers.{i}.mlp.shared_expert.gate_proj.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.mlp.shared_expert.up_proj.weight"},
    {"blk.{i}.ffn_down_shexp.weight", "model.layers.{i}.mlp.shared_expert.down_proj.weight"},
};

// Some writers pack the matrices that read the same input into one tensor.
constexpr GgufForm kReadOnly = {.read_only = true};
constexpr GgufForm kQkv = {.read_only = true, .shape = GgufForm::Shape::kQkv};
constexpr GgufForm kPairedQkv = {.order = kRopeQuery.order,
                                 .key_order = kRopeKey.order,
                                 .read_only = true,
                                 .shape = GgufForm::Shape::kQkv};

// RoPE rotates halves of a head, as in Hugging Face, so rows keep their order.
constexpr GgufName kAttentionRows[] = {
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"},
    {"blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias"},
    {"blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias"},
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.q_norm.weight", kNorm},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.k_norm.weight", kNorm},
};

constexpr GgufName kFusedExpertsRows[] = {
    {"blk.{i}.ffn_gate_up_exps.weight", "model.layers.{i}.mlp.experts.gate_up_proj", kReadOnly},
};

// These names are of the weights of the model, not of a checkpoint, which has some of them in
// another form, such as transposed.
constexpr GgufName kExpertWeightsRows[] = {
    {"blk.{i}.ffn_down_exps.weight", "layers.{i}.feed_forward.experts.w2.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "layers.{i}.feed_forward.experts.w1.weight"},
    {"blk.{i}.ffn_up_exps.weight", "layers.{i}.feed_forward.experts.w3.weight"},
    {"blk.{i}.ffn_gate_exps.bias", "layers.{i}.feed_forward.experts.w1.bias"},
    {"blk.{i}.ffn_up_exps.bias", "layers.{i}.feed_forward.experts.w3.bias"},
};

constexpr GgufName kFusedAttentionRows[] = {
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.self_attn.{p}_proj.weight", kQkv},
    {"blk.{i}.attn_qkv.bias", "model.layers.{i}.self_attn.{p}_proj.bias", kQkv},
};

// RoPE rotates pairs of neighbouring dimensions, so rows are permuted.
constexpr GgufName kPairedAttentionRows[] = {
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight", kRopeQuery},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight", kRopeKey},
    {"blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias", kRopeQuery},
    {"blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias", kRopeKey},
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.self_attn.{p}_proj.weight", kPairedQkv},
    {"blk.{i}.attn_qkv.bias", "model.layers.{i}.self_attn.{p}_proj.bias", kPairedQkv},
};

constexpr GgufName kValueAndOutputRows[] = {
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"},
    {"blk.{i}.attn_v.bias", "model.layers.{i}.self_attn.v_proj.bias"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.attn_output.bias", "model.layers.{i}.self_attn.o_proj.bias"},
};

constexpr GgufName kPreNormRows[] = {
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight", kNorm},
};

constexpr GgufName kPostAttentionNormRows[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight",
     kNorm},
};

constexpr GgufName kFourNormsRows[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight",
     kNorm},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.pre_feedforward_layernorm.weight", kNorm},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_feedforward_layernorm.weight", kNorm},
};

// The gated norm of linear attention multiplies by w itself: it is not shifted.
constexpr GgufName kTiledDeltaNetRows[] = {
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.linear_attn.in_proj_qkv.weight", kQkvRows},
    {"blk.{i}.attn_gate.weight", "model.layers.{i}.linear_attn.in_proj_z.weight", kValueRows},
    {"blk.{i}.ssm_beta.weight", "model.layers.{i}.linear_attn.in_proj_b.weight", kValueHeads},
    {"blk.{i}.ssm_alpha.weight", "model.layers.{i}.linear_attn.in_proj_a.weight", kValueHeads},
    {"blk.{i}.ssm_a", "model.layers.{i}.linear_attn.A_log", kValueHeadsNegExp},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.linear_attn.dt_bias", kValueHeads},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.linear_attn.conv1d.weight", kQkvConv},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.linear_attn.norm.weight"},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.linear_attn.out_proj.weight", kValueColumns},
};

constexpr GgufName kGroupedDeltaNetRows[] = {
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.linear_attn.in_proj_qkvz.weight", kPackedInput},
    {"blk.{i}.attn_gate.weight", "model.layers.{i}.linear_attn.in_proj_qkvz.weight", kPackedGate},
    {"blk.{i}.ssm_ba.weight", "model.layers.{i}.linear_attn.in_proj_ba.weight"},
    {"blk.{i}.ssm_a", "model.layers.{i}.linear_attn.A_log", kNegExp},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.linear_attn.dt_bias"},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.linear_attn.conv1d.weight", kConv},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.linear_attn.norm.weight"},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.linear_attn.out_proj.weight"},
};

// Norms stand after attention and MLP, and none stands before them.
constexpr GgufName kTwoPostNormsRows[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight",
     kNorm},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_feedforward_layernorm.weight", kNorm},
};

// q, k and v are one tensor, and gate and up another one, as in the checkpoint.
constexpr GgufName kPackedProjectionsRows[] = {
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.self_attn.qkv_proj.weight"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.gate_up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
};

constexpr GgufName kGateUpRows[] = {
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.gate_up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
};

constexpr GgufName kLfm2Rows[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"token_embd_norm.weight", "model.embedding_norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.operator_norm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.ffn_norm.weight"},
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.feed_forward.w1.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.feed_forward.w2.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.feed_forward.w3.weight"},
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"},
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.out_proj.weight"},
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.q_layernorm.weight"},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.k_layernorm.weight"},
    {"blk.{i}.shortconv.conv.weight", "model.layers.{i}.conv.conv.weight", kConv},
    {"blk.{i}.shortconv.in_proj.weight", "model.layers.{i}.conv.in_proj.weight"},
    {"blk.{i}.shortconv.out_proj.weight", "model.layers.{i}.conv.out_proj.weight"},
};

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

constexpr GgufForm kOfExperts = {.models = GgufForm::Models::kWithExperts};
constexpr GgufForm kOfMlps = {.models = GgufForm::Models::kWithoutExperts};

// The last rows name weights of the model, because checkpoints pack gate and up in one tensor.
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
    {"blk.{i}.attn_qkv.bias", "transformer.h.{i}.attn.c_attn.bias"},
    {"blk.{i}.attn_output.bias", "transformer.h.{i}.attn.c_proj.bias"},
    {"blk.{i}.ffn_up.bias", "transformer.h.{i}.mlp.c_fc.bias"},
    {"blk.{i}.ffn_down.bias", "transformer.h.{i}.mlp.c_proj.bias"},
};

constexpr GgufName kBackboneRows[] = {
    {"token_embd.weight", "backbone.embeddings.weight"},
    {"output_norm.weight", "backbone.norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "backbone.layers.{i}.norm.weight"},
    {"blk.{i}.ssm_conv1d.weight", "backbone.layers.{i}.mixer.conv1d.weight", kConv},
    {"blk.{i}.ssm_conv1d.bias", "backbone.layers.{i}.mixer.conv1d.bias"},
    {"blk.{i}.ssm_in.weight", "backbone.layers.{i}.mixer.in_proj.weight"},
    {"blk.{i}.ssm_in.bias", "backbone.layers.{i}.mixer.in_proj.bias"},
    {"blk.{i}.ssm_out.weight", "backbone.layers.{i}.mixer.out_proj.weight"},
    {"blk.{i}.ssm_out.bias", "backbone.layers.{i}.mixer.out_proj.bias"},
};

}  // namespace

constinit const GgufForm kHeadValues = {.written_shape = kHeadColumn,
                                        .shape = GgufForm::Shape::kFlat};
constinit const GgufForm kHeadNegExp = {.written_shape = kHeadColumn,
                                        .shape = GgufForm::Shape::kFlat,
                                        .values = GgufForm::Values::kNegExp};
constinit const GgufForm kGroupRows = {.written_shape =
                                           [](const ModelConfig& c) {
                                             const int64_t groups =
                                                 std::max<int64_t>(1, c.mamba.groups);
                                             return std::vector{groups, c.mamba.inner() / groups};
                                           },
                                       .shape = GgufForm::Shape::kFlat};

constinit const GgufNames kFrame = kFrameRows;
constinit const GgufNames kMlp = kMlpRows;
constinit const GgufNames kExperts = kExpertsRows;
constinit const GgufNames kFusedExperts = kFusedExpertsRows;
constinit const GgufNames kExpertWeights = kExpertWeightsRows;
constinit const GgufNames kAttention = kAttentionRows;
constinit const GgufNames kFusedAttention = kFusedAttentionRows;
constinit const GgufNames kPairedAttention = kPairedAttentionRows;
constinit const GgufNames kValueAndOutput = kValueAndOutputRows;
constinit const GgufNames kPreNorm = kPreNormRows;
constinit const GgufNames kPostAttentionNorm = kPostAttentionNormRows;
constinit const GgufNames kFourNorms = kFourNormsRows;
constinit const GgufNames kTiledDeltaNet = kTiledDeltaNetRows;
constinit const GgufNames kGroupedDeltaNet = kGroupedDeltaNetRows;
constinit const GgufNames kTwoPostNorms = kTwoPostNormsRows;
constinit const GgufNames kPackedProjections = kPackedProjectionsRows;
constinit const GgufNames kGateUp = kGateUpRows;
constinit const GgufNames kLfm2 = kLfm2Rows;
constinit const GgufNames kGpt2 = kGpt2Rows;
constinit const GgufNames kNormBiases = kNormBiasesRows;
constinit const GgufNames kBert = kBertRows;
constinit const GgufNames kSharedExperts = kSharedExpertsRows;
constinit const GgufNames kGraniteExperts = kGraniteExpertsRows;
constinit const GgufNames kBackbone = kBackboneRows;

RowOrder qkv_by_head(const ModelConfig& c) {
  StridedPiece rows;
  add_axis(rows, {c.num_heads, c.head_dim});
  add_axis(rows, {3, c.num_heads * c.head_dim});
  add_axis(rows, {c.head_dim, 1});
  return {rows};
}

RowOrder qkv_apart(const ModelConfig& c) {
  StridedPiece rows;
  add_axis(rows, {3, c.head_dim});
  add_axis(rows, {c.num_heads, 3 * c.head_dim});
  add_axis(rows, {c.head_dim, 1});
  return {rows};
}

KeyOrder standard_keys(const KeyOrder& more) {
  return with({kStandard, kStatedHeadLengths, kFileType}, more);
}

KeyOrder llama_keys(const KeyOrder& more) {
  return with(standard_keys({kVocabulary, kRopeDimension}), more);
}

KeyOrder granite_keys(const KeyOrder& more) {
  return with({kStandard, kFileType, kVocabulary, kRopeDimension, kMultipliers}, more);
}

KeyOrder gemma_keys(const KeyOrder& more) {
  return with({kContext, kEmbedding, kBlocks, kFeedForward, kHeads, kKvHeads, kRmsEpsilon,
               kHeadLengths, kFileType},
              more);
}

KeyOrder deepseek_keys() {
  return {kStandard,    kLatentLengths,   kFileType,      kDenseBlocks,
          kVocabulary,  kLatentSizes,     kExpertLength,  kSharedCount,
          kExpertScale, kExpertNormIfAny, kRopeDimension, kLatentMultiplier};
}

KeyOrder bert_keys() {
  return {kBlocks,           kContext,  kEmbedding, kFeedForward, kHeads,
          kLayerNormEpsilon, kFileType, kNotCausal, kPooling,     kLabels};
}

TensorNames attention_biases() {
  return {"blk.{i}.attn_q.bias", "blk.{i}.attn_k.bias", "blk.{i}.attn_v.bias", kOutputBias};
}

TensorNames mlp_biases() {
  return {"blk.{i}.ffn_gate.bias", "blk.{i}.ffn_up.bias", "blk.{i}.ffn_down.bias"};
}

TensorNames block_biases() { return with<TensorNames>({kOutputBias}, mlp_biases()); }

TensorNames latent_biases() {
  const TensorNames before = {"blk.{i}.attn_q_a.bias", "blk.{i}.attn_kv_a_mqa.bias"};
  return with<TensorNames>(
      with(before, block_biases()),
      {"blk.{i}.ffn_gate_shexp.bias", "blk.{i}.ffn_up_shexp.bias", "blk.{i}.ffn_down_shexp.bias"});
}

}  // namespace ferry::converters::gguf_tables
