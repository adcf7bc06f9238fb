#include "converters/adapters/gguf/architecture.h"

#include <algorithm>
#include <utility>

#include "converters/keys/row_layouts.h"

namespace ferry::converters {
namespace {

constexpr GgufForm kNorm = {.values = GgufForm::Values::kNorm};
constexpr GgufForm kConv = {.shape = GgufForm::Shape::kChannelAxis};
constexpr GgufForm kOneRow = {.shape = GgufForm::Shape::kOneRow};
constexpr GgufForm kStacked = {.shape = GgufForm::Shape::kExperts};
constexpr GgufForm kNegExp = {.values = GgufForm::Values::kNegExp};

// Row 2j + s of each head is row s * dim / 2 + j of a checkpoint.
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

// The reverse: head k * r + t is head t * nk + k of the file.
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
constexpr GgufOrder kQkvDims = [](const ModelConfig& c) {  // the same after q and k
  return grouped_heads(c.linear, 2 * c.linear.key_size(), c.linear.value_dim);
};
constexpr GgufOrder kTiledQkvDims = [](const ModelConfig& c) {
  return tiled_heads(c.linear, 2 * c.linear.key_size(), c.linear.value_dim);
};
constexpr GgufOrder kHeads = [](const ModelConfig& c) { return grouped_heads(c.linear, 0, 1); };
constexpr GgufOrder kTiledHeads = [](const ModelConfig& c) { return tiled_heads(c.linear, 0, 1); };

constexpr GgufForm kValueRows = {.order = kValueDims, .written = kTiledValueDims};
constexpr GgufForm kValueColumns = {
    .order = kValueDims, .written = kTiledValueDims, .of_columns = true};
constexpr GgufForm kQkvRows = {.order = kQkvDims, .written = kTiledQkvDims};
constexpr GgufForm kQkvConv = {
    .order = kQkvDims, .written = kTiledQkvDims, .shape = GgufForm::Shape::kChannelAxis};
constexpr GgufForm kValueHeads = {.order = kHeads, .written = kTiledHeads};
constexpr GgufForm kValueHeadsNegExp = {
    .order = kHeads, .written = kTiledHeads, .values = GgufForm::Values::kNegExp};

// Per key head its rows of q, k, v and z, of all q, all k, all v and, in the gate, all z.
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

constexpr GgufName kFrame[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight", kNorm},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight", kNorm},
};

constexpr GgufName kMlp[] = {
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.mlp.gate_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
    {"blk.{i}.ffn_gate.bias", "model.layers.{i}.mlp.gate_proj.bias"},
    {"blk.{i}.ffn_up.bias", "model.layers.{i}.mlp.up_proj.bias"},
    {"blk.{i}.ffn_down.bias", "model.layers.{i}.mlp.down_proj.bias"},
};

constexpr GgufName kExperts[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.gate.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.mlp.experts.{e}.gate_proj.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.mlp.experts.{e}.up_proj.weight", kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.mlp.experts.{e}.down_proj.weight", kStacked},
    {"blk.{i}.ffn_gate_inp_shexp.weight", "model.layers.{i}.mlp.shared_expert_gate.weight",
     kOneRow},
    {"blk.{i}.ffn_gate_shexp.weight", "model.layers.{i}.mlp.shared_expert.gate_proj.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.mlp.shared_expert.up_proj.weight"},
    {"blk.{i}.ffn_down_shexp.weight", "model.layers.{i}.mlp.shared_expert.down_proj.weight"},
};

// Rotated in halves, as Hugging Face does: rows as they are.
constexpr GgufName kAttention[] = {
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight"},
    {"blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias"},
    {"blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias"},
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.q_norm.weight", kNorm},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.k_norm.weight", kNorm},
};

// Rotated in pairs: rows were permuted.
constexpr GgufName kPairedAttention[] = {
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight", kRopeQuery},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight", kRopeKey},
    {"blk.{i}.attn_q.bias", "model.layers.{i}.self_attn.q_proj.bias", kRopeQuery},
    {"blk.{i}.attn_k.bias", "model.layers.{i}.self_attn.k_proj.bias", kRopeKey},
};

constexpr GgufName kValueAndOutput[] = {
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight"},
    {"blk.{i}.attn_v.bias", "model.layers.{i}.self_attn.v_proj.bias"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.attn_output.bias", "model.layers.{i}.self_attn.o_proj.bias"},
};

constexpr GgufName kPreNorm[] = {
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.post_attention_layernorm.weight", kNorm},
};

constexpr GgufName kPostAttentionNorm[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight",
     kNorm},
};

constexpr GgufName kFourNorms[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight",
     kNorm},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.pre_feedforward_layernorm.weight", kNorm},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_feedforward_layernorm.weight", kNorm},
};

// The gated norm of linear attention multiplies by w itself: it is not shifted.
constexpr GgufName kTiledDeltaNet[] = {
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

constexpr GgufName kGroupedDeltaNet[] = {
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.linear_attn.in_proj_qkvz.weight", kPackedInput},
    {"blk.{i}.attn_gate.weight", "model.layers.{i}.linear_attn.in_proj_qkvz.weight", kPackedGate},
    {"blk.{i}.ssm_ba.weight", "model.layers.{i}.linear_attn.in_proj_ba.weight"},
    {"blk.{i}.ssm_a", "model.layers.{i}.linear_attn.A_log", kNegExp},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.linear_attn.dt_bias"},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.linear_attn.conv1d.weight", kConv},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.linear_attn.norm.weight"},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.linear_attn.out_proj.weight"},
};

// Norms follow attention and MLP; there are none before.
constexpr GgufName kTwoPostNorms[] = {
    {"blk.{i}.post_attention_norm.weight", "model.layers.{i}.post_attention_layernorm.weight",
     kNorm},
    {"blk.{i}.post_ffw_norm.weight", "model.layers.{i}.post_feedforward_layernorm.weight", kNorm},
};

// One tensor for q, k and v, and one for gate and up, as they are in the checkpoint.
constexpr GgufName kPackedProjections[] = {
    {"blk.{i}.attn_qkv.weight", "model.layers.{i}.self_attn.qkv_proj.weight"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.gate_up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
};

constexpr GgufName kGateUp[] = {
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.gate_up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.down_proj.weight"},
};

constexpr GgufName kLfm2[] = {
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

const std::vector<GgufArchitecture>& architectures() {
  static const std::vector<GgufArchitecture> kAll = {
      {.name = "llama",
       .model_type = "llama",
       .other_types = {"mistral"},
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp}},
      {.name = "qwen2",
       .model_type = "qwen2",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp}},
      {.name = "qwen2moe",
       .model_type = "qwen2_moe",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp, kExperts}},
      {.name = "qwen3",
       .model_type = "qwen3",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp}},
      {.name = "qwen3moe",
       .model_type = "qwen3_moe",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp, kExperts},
       .normed_experts = true},
      {.name = "qwen35",
       .model_type = "qwen3_5_text",
       .other_types = {"qwen3_5"},
       .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp, kTiledDeltaNet},
       .shifted_norms = true,
       .linear_attention = true},
      {.name = "qwen3next",
       .model_type = "qwen3_next",
       .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp, kExperts,
                  kGroupedDeltaNet},
       .shifted_norms = true,
       .linear_attention = true,
       .normed_experts = true},
      {.name = "gemma3",
       .model_type = "gemma3_text",
       .other_types = {"gemma3"},
       .tables = {kFrame, kAttention, kValueAndOutput, kFourNorms, kMlp},
       .shifted_norms = true,
       .sliding_pattern = true,
       .gemma = true,
       .layers_scaled_by_hidden = 62,
       .cuts_vocabulary = true},
      {.name = "gemma2",
       .model_type = "gemma2",
       .tables = {kFrame, kAttention, kValueAndOutput, kFourNorms, kMlp},
       .shifted_norms = true,
       .gemma = true,
       .layers_scaled_by_hidden = 46},
      {.name = "granite",
       .model_type = "granite",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .multipliers = true},
      {.name = "olmo2",
       .model_type = "olmo2",
       .tables = {kFrame, kAttention, kValueAndOutput, kTwoPostNorms, kMlp}},
      {.name = "phi3",
       .model_type = "phi3",
       .tables = {kFrame, kPackedProjections, kPreNorm},
       .partial_rotary = true},
      {.name = "smollm3",
       .model_type = "smollm3",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .no_rope_interval = 4},
      {.name = "lfm2", .model_type = "lfm2", .tables = {kLfm2}, .read = false},
      {.name = "qwen2vl",
       .model_type = "qwen2_5_vl_text",
       .other_types = {"qwen2_vl_text"},
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp},
       .read = false},
      {.name = "qwen3vl",
       .model_type = "qwen3_vl_text",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp},
       .read = false},
      {.name = "mistral3",
       .model_type = "mistral",
       .wrapper = "mistral3",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .read = false},
      {.name = "chatglm",
       .model_type = "glm",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kGateUp},
       .read = false},
  };
  return kAll;
}

}  // namespace

bool GgufArchitecture::has_experts() const {
  for (const auto& table : tables) {
    for (const GgufName& row : table) {
      if (row.form.shape == GgufForm::Shape::kExperts) return true;
    }
  }
  return false;
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  for (const GgufArchitecture& architecture : architectures()) {
    if (architecture.read && architecture.name == name) return &architecture;
  }
  return nullptr;
}

const GgufArchitecture* gguf_architecture_of(const ModelConfig& config) {
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& architecture : architectures()) {
    const bool of_model = architecture.model_type == config.text_type ||
                          std::ranges::count(architecture.other_types, config.text_type) > 0;
    if (!architecture.written || !of_model) continue;
    if (architecture.wrapper == config.model_type) return &architecture;
    if (architecture.wrapper.empty() && found == nullptr) found = &architecture;
  }
  return found;
}

std::string gguf_architecture_names() {
  std::string names;
  for (const GgufArchitecture& architecture : architectures()) {
    if (!architecture.read) continue;
    names += (names.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return names;
}

}  // namespace ferry::converters
