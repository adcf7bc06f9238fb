#include "converters/keys/gemma3n_audio_keys.h"

#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> gemma3n_audio_rules(const std::string& tower, const ModelConfig& config) {
  const std::string front = tower + "subsample_conv_projection.";
  return concat(
      {tower_renames(front, 0,
                     {{"conv_0.conv.weight", "audio.convolutions.0.weight"},
                      {"conv_0.norm.weight", "audio.convolutions.0.norm.weight"},
                      {"conv_1.conv.weight", "audio.convolutions.1.weight"},
                      {"conv_1.norm.weight", "audio.convolutions.1.norm.weight"},
                      {"input_proj_linear.weight", "audio.subsampling.weight"}}),
       tower_renames(
           tower + "conformer.{i}.", config.audio->num_layers,
           {{"ffw_layer_start.pre_layer_norm.weight", "audio.layers.{i}.first_norm.weight"},
            {"ffw_layer_start.ffw_layer_1.weight", "audio.layers.{i}.first_mlp.w1.weight"},
            {"ffw_layer_start.ffw_layer_2.weight", "audio.layers.{i}.first_mlp.w2.weight"},
            {"ffw_layer_start.post_layer_norm.weight", "audio.layers.{i}.post_first_norm.weight"},
            {"attention.pre_attn_norm.weight", "audio.layers.{i}.attention_norm.weight"},
            {"attention.attn.q_proj.weight", "audio.layers.{i}.attention.wq.weight"},
            {"attention.attn.k_proj.weight", "audio.layers.{i}.attention.wk.weight"},
            {"attention.attn.v_proj.weight", "audio.layers.{i}.attention.wv.weight"},
            {"attention.attn.per_dim_scale", "audio.layers.{i}.attention.dim_scale"},
            {"attention.attn.relative_position_embedding.pos_proj.weight",
             "audio.layers.{i}.attention.relative_wk.weight"},
            {"attention.post.weight", "audio.layers.{i}.attention.wo.weight"},
            {"attention.post_norm.weight", "audio.layers.{i}.post_attention_norm.weight"},
            {"lconv1d.pre_layer_norm.weight", "audio.layers.{i}.convolution_norm.weight"},
            {"lconv1d.linear_start.weight", "audio.layers.{i}.convolution.w1.weight"},
            {"lconv1d.depthwise_conv1d.weight", "audio.layers.{i}.convolution.filters.weight"},
            {"lconv1d.conv_norm.weight", "audio.layers.{i}.convolution.norm.weight"},
            {"lconv1d.linear_end.weight", "audio.layers.{i}.convolution.w2.weight"},
            {"ffw_layer_end.pre_layer_norm.weight", "audio.layers.{i}.second_norm.weight"},
            {"ffw_layer_end.ffw_layer_1.weight", "audio.layers.{i}.second_mlp.w1.weight"},
            {"ffw_layer_end.ffw_layer_2.weight", "audio.layers.{i}.second_mlp.w2.weight"},
            {"ffw_layer_end.post_layer_norm.weight", "audio.layers.{i}.post_second_norm.weight"},
            {"norm.weight", "audio.layers.{i}.norm.weight"}})});
}

std::vector<KeyRule> gemma3n_embedder_rules(const std::string& embedder, const std::string& name,
                                            bool has_encoder) {
  const std::string table = name + ".tokens.weight", hard = name + ".tokens.norm.weight";
  const std::string linear = name + ".tokens.projection.weight",
                    soft = name + ".connector.norm.weight";
  std::vector<KeyRule> rules = tower_renames(embedder, 0,
                                             {{"embedding.weight", table.c_str()},
                                              {"hard_embedding_norm.weight", hard.c_str()},
                                              {"embedding_projection.weight", linear.c_str()}});
  const std::string norm = embedder + "soft_embedding_norm.weight";
  if (!has_encoder) {
    rules.push_back(drop_rule(norm, name + ": no encoder is built, whose rows it is for"));
    return rules;
  }
  return concat({rules, tower_renames("", 0, {{norm.c_str(), soft.c_str()}})});
}

}  // namespace ferry::converters
