// The keys of what layers have beside plain attention and an MLP: experts, latent attention, Mamba,
// linear attention.
#include <algorithm>
#include <limits>
#include <utility>

#include "converters/blocks/gemma3n.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "dialects/gguf/model/layer_kinds.h"
#include "dialects/gguf/model/written_key_writer.h"

namespace ferry::converters {
// Without expert_gating_func readers assume a softmax in this architecture. They take groups only
// if some of them are left out; where none is, there is one group as well.
void GgufKeyWriter::add_expert_groups() {
  if (states("n_group") || c_.moe.groups > 1) {
    const bool chosen = c_.moe.top_groups < c_.moe.groups;
    own("expert_group_count", whole(chosen ? c_.moe.groups : 1));
    own("expert_group_used_count", whole(chosen ? c_.moe.top_groups : 1));
  }
  const bool sigmoid = in_.architecture->latent && has_sigmoids();
  if (states("scoring_func") || sigmoid) add_expert_gating();
}

void GgufKeyWriter::add_all_expert_groups() {
  own("expert_group_count", whole(c_.moe.groups));
  own("expert_group_used_count", whole(c_.moe.top_groups));
}

void GgufKeyWriter::add_one_shared_expert() { own("expert_shared_count", whole(1)); }

void GgufKeyWriter::add_latent_experts() {
  if (c_.moe.latent_size > 0) own("moe_latent_size", whole(c_.moe.latent_size));
}

bool GgufKeyWriter::has_sigmoids() const { return c_.moe.scores == MoeConfig::Scores::kSigmoid; }

void GgufKeyWriter::add_short_conv() {
  own("shortconv.l_cache", whole(static_cast<int64_t>(number("conv_L_cache"))));
}

void GgufKeyWriter::add_expert_sizes() {
  if (in_.architecture->has_key(GgufKey::kMambaSizes)) {
    own("expert_shared_feed_forward_length", whole(c_.intermediate_size));
    return;
  }
  if (c_.moe.experts == 0) return;
  add_expert_length();
  if (c_.moe.shared_size > 0 || states("shared_expert_intermediate_size")) {
    own("expert_shared_feed_forward_length", whole(c_.moe.shared_size));
  }
}

void GgufKeyWriter::add_expert_length() {
  own("expert_feed_forward_length", whole(c_.moe.expert_size));
}

void GgufKeyWriter::add_shared_count() {
  own("expert_shared_count", whole(c_.moe.shared_size / std::max<int64_t>(c_.moe.expert_size, 1)));
}

void GgufKeyWriter::add_shared_length() {
  if (c_.moe.shared_size > 0) {
    own("expert_shared_feed_forward_length", whole(c_.moe.shared_size));
  }
}

void GgufKeyWriter::add_predicting_layers() { own("nextn_predict_layers", whole(0)); }

void GgufKeyWriter::add_dense_blocks() {
  int64_t dense = 0;
  while (dense < c_.num_layers && !c_.has_experts(dense)) ++dense;
  own("leading_dense_block_count", whole(dense));
}

void GgufKeyWriter::add_expert_gating() {
  own("expert_gating_func",
      static_cast<uint32_t>(has_sigmoids() ? kGatingSigmoid : kGatingSoftmax));
}

void GgufKeyWriter::add_expert_scale() { own("expert_weights_scale", real(c_.moe.scale)); }

void GgufKeyWriter::add_expert_norm() {
  own("expert_weights_norm",
      c_.moe.norm_top_scores || c_.moe.scores == MoeConfig::Scores::kTopSoftmax);
}

void GgufKeyWriter::add_expert_norm_if_any() {
  if (c_.moe.norm_top_scores) add_expert_norm();
}

// Writes the lengths of the one head that all share: its keys, and the latent vector, which is
// its value.
void GgufKeyWriter::add_latent_lengths() {
  own("attention.key_length", whole(c_.head_dim));
  own("attention.value_length", whole(c_.number("kv_lora_rank")));
}

void GgufKeyWriter::add_latent_sizes() {
  const int64_t queries = c_.number("q_lora_rank");
  if (queries > 0) own("attention.q_lora_rank", whole(queries));
  own("attention.kv_lora_rank", whole(c_.number("kv_lora_rank")));
  own("attention.key_length_mla", whole(c_.number("qk_nope_head_dim") + c_.rotary_dim()));
  own("attention.value_length_mla", whole(c_.number("v_head_dim")));
}

// Writes the sizes of latent attention whose keys and values are made for every head. Readers take
// the hidden size / heads for the length of values where no key states it.
void GgufKeyWriter::add_latent_heads() {
  own("attention.head_count_kv", whole(c_.num_heads));
  own("attention.q_lora_rank", whole(c_.number("q_lora_rank")));
  own("attention.kv_lora_rank", whole(c_.number("kv_lora_rank")));
  own("attention.key_length", whole(c_.number("qk_nope_head_dim") + c_.rotary_dim()));
  const int64_t value = c_.number("v_head_dim");
  if (value * c_.num_heads != c_.hidden_size) own("attention.value_length", whole(value));
  add_rope_dimension();
}

void GgufKeyWriter::add_latent_multiplier() {
  constexpr double kTenth = 0.1;
  if (rope_member("mscale_all_dim") == nullptr) return;
  own("rope.scaling.yarn_log_multiplier", real(kTenth * mscale_all_dim()));
}

void GgufKeyWriter::add_mamba_sizes() {
  own("ssm.conv_kernel", whole(c_.mamba.conv_kernel));
  own("ssm.state_size", whole(c_.mamba.state));
  own("ssm.group_count", whole(c_.mamba.groups));
  own("ssm.inner_size", whole(c_.mamba.inner()));
  own("ssm.time_step_rank", whole(c_.mamba.heads));
}

void GgufKeyWriter::add_state_sizes() {
  const MambaConfig& mamba = c_.mamba;
  own("ssm.conv_kernel", whole(mamba.conv_kernel));
  own("ssm.inner_size", whole(mamba.inner()));
  own("ssm.state_size", whole(mamba.state));
  own("ssm.time_step_rank", whole(mamba.rank > 0 ? mamba.rank : mamba.heads));
  if (mamba.rank == 0) own("ssm.group_count", whole(mamba.groups));
}

void GgufKeyWriter::add_inner_norms() { own("ssm.dt_b_c_rms", c_.mamba.inner_norms); }

void GgufKeyWriter::add_expert_counts() {
  own("expert_count", whole(c_.moe.experts));
  add_experts_of_token();
}

void GgufKeyWriter::add_experts_of_token() { own("expert_used_count", whole(c_.moe.per_token)); }

void GgufKeyWriter::add_expert_interval() {
  const auto stated = [&](const char* key) {  // both defaults of the class are 1
    return whole(states(key) ? static_cast<int64_t>(number(key)) : 1);
  };
  own("interleave_moe_layer_step", stated("moe_layer_interval"));
  own("leading_dense_block_count", stated("moe_layer_start_index"));
}

void GgufKeyWriter::add_expert_step() {
  own("interleave_moe_layer_step", whole(gguf_expert_step(c_)));
}

void GgufKeyWriter::add_linear_attention() {
  own("ssm.conv_kernel", whole(c_.linear.conv_kernel));
  own("ssm.state_size", whole(c_.linear.key_dim));
  own("ssm.group_count", whole(c_.linear.key_heads));
  own("ssm.time_step_rank", whole(c_.linear.value_heads));
  own("ssm.inner_size", whole(c_.linear.value_size()));
  std::vector<bool> recurrent;
  for (const LayerType type : c_.layer_types) {
    recurrent.push_back(type == LayerType::kLinearAttention);
  }
  own("attention.recurrent_layers", recurrent);
  const auto interval = static_cast<int64_t>(number("full_attention_interval"));
  own("full_attention_interval", whole(interval > 0 ? interval : 4));
  add_rope_dimension();
  // Readers of these architectures need the key in any case. The values are those of the
  // reference.
  if (name_.starts_with("qwen35") && rope_sections().empty()) {
    own("rope.dimension_sections", std::vector<int32_t>{11, 11, 10, 0});
  }
}

void GgufKeyWriter::add_streams() {
  own("altup.active_idx", whole(c_.number("altup_active_idx")));
  own("altup.num_inputs", whole(altup_streams(c_)));
  own("embedding_length_per_layer_input", whole(c_.number(kLayerInputSize)));
  own("attention.shared_kv_layers", whole(c_.num_layers - first_shared_layer(c_)));
  std::vector<float> cutoffs;
  for (int64_t i = 0; i < c_.num_layers; ++i) {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    cutoffs.push_back(real(gemma3n_cutoff(c_, i).value_or(kNone)));
  }
  own("activation_sparsity_scale", cutoffs);
  add_window_pattern();
}

void GgufKeyWriter::add_kinds_of_layers() {
  for (GgufKeyValue& key : kinds_of_layers_keys(c_)) own(key.key, std::move(key.value));
}

}  // namespace ferry::converters
