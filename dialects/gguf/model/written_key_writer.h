// GgufKeyWriter: makes the keys of one file (written_keys.h), each group by the function that the
// table in written_keys.cc names for it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {

class GgufKeyWriter {
 public:
  using Function = void (GgufKeyWriter::*)();

  // `config` is the text part of the config as one object.
  GgufKeyWriter(const GgufKeysInput& input, nlohmann::json config);
  Result<std::vector<GgufKeyValue>> run();
  double mscale_all_dim() const;
  std::vector<int32_t> rope_sections() const;

 private:
  using json = nlohmann::json;

  static uint32_t whole(int64_t value) { return static_cast<uint32_t>(value); }
  static float real(double value) { return static_cast<float>(value); }
  void set(std::string key, GgufValue value);
  void own(std::string_view key, GgufValue value);
  bool states(const char* key) const;
  double number(const char* key) const;
  const json* rope_member(const char* key) const;
  static const json* member(const json& object, const char* key);
  void add_blocks();
  void add_context();
  void add_embedding();
  void add_feed_forward();
  void add_heads();
  void add_rms_epsilon();
  void add_layer_norm_epsilon();
  void add_file_type();
  void add_quantized_file_type();
  void add_rope_dimension();
  void add_rope_base();
  void add_vocabulary();
  void add_logit_scale();
  void add_clamp();
  void add_not_causal();
  void add_source_blocks();
  void add_relative_buckets();
  void add_decoder_start();
  void add_labels();
  void add_half_window();
  static uint32_t some_window(int64_t tokens);
  void add_projections();
  void add_streams();
  void add_pooling();
  void add_sliding_rope_base();
  void add_modern_epsilons();
  void add_label_pooling();
  void add_local_window();
  void add_window_step();
  void add_hidden_activation();
  void add_no_bos();
  void add_standard();
  void add_expert_groups();
  bool has_sigmoids() const;
  int64_t feed_forward_length() const;
  void add_kv_heads();
  void add_epsilon();
  void add_head_lengths();
  void add_stated_head_lengths();
  void add_other_head_lengths();
  void add_rope();
  void add_yarn();
  void add_other_rope_base();
  void add_rope_scaling();
  void add_unscaled_rope();
  void add_named_activation();
  void add_alpha_rope();
  void add_yarn_multiplier();
  void add_query_growth();
  void add_short_conv();
  void add_expert_sizes();
  void add_expert_length();
  void add_shared_count();
  void add_shared_length();
  void add_predicting_layers();
  void add_dense_blocks();
  void add_expert_gating();
  void add_expert_scale();
  void add_expert_norm();
  void add_expert_norm_if_any();
  void add_latent_lengths();
  void add_latent_sizes();
  void add_latent_multiplier();
  void add_mamba_sizes();
  void add_state_sizes();
  void add_inner_norms();
  void add_expert_counts();
  void add_experts_of_token();
  void add_expert_interval();
  void add_expert_step();
  void add_turned();
  void add_deepstack();
  void add_multipliers();
  void add_score_softcap();
  void add_logit_softcap();
  void add_window();
  void add_window_or_none();
  void add_window_pattern();
  void add_other_windows();
  void add_parallel_residual();
  void add_linear_attention();
  void add_original_context();
  int64_t original_positions() const;
  void add_kinds_of_layers();
  void add_data_layout();
  void add_alibi_bias();
  void add_latent_heads();
  void add_layer_feed_forward();
  void add_both_epsilons();
  void add_mimo_heads();
  void add_all_expert_groups();
  void add_one_shared_expert();
  void add_latent_experts();

  static Function function_of(GgufKey key);

  const GgufKeysInput& in_;
  const ModelConfig& c_;
  std::string_view name_;
  json json_;
  std::vector<GgufKeyValue> out_;
};

}  // namespace ferry::converters
