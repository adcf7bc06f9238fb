// Refusals of --to gguf: files cannot say it, or llama.cpp does not read it.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/ferry_process.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::gguf_refusals_test {
namespace {

using verb_outcomes::change_config;
using Json = nlohmann::json;

Outcome to_gguf(const std::string& checkpoint, const std::string& out) {
  return run_ferry({"convert", checkpoint, "--to", "gguf", "-o", out});
}

// Readers of GGUF files take these numbers as constants, and no key changes them.
TEST(GgufRefusals, WhatAFileCannotSay) {
  struct Case {
    const char* checkpoint;
    Json change;
    const char* field;
  };
  const Case kCases[] = {
      {"golden/gemma2", {{"query_pre_attn_scalar", 77}}, "query_pre_attn_scalar"},
      {"golden/smollm3", {{"no_rope_layers", {1, 0, 1, 1}}}, "no_rope_layers"},
      {"golden/llama", {{"hidden_act", "gelu"}}, "hidden_act"},
      {"golden/llama_yarn",
       {{"rope_parameters",
         {{"rope_type", "yarn"},
          {"rope_theta", 10000.0},
          {"factor", 4.0},
          {"original_max_position_embeddings", 64},
          {"beta_fast", 32.0},
          {"beta_slow", 1.0},
          {"attention_factor", 2.0}}}},
       "attention_factor"},
      {"golden/llama_yarn", Json::object(), "beta_fast"},
      {"gguf_written/cohere2",
       {{"layer_types", {"full_attention", "full_attention", "full_attention", "full_attention"}}},
       "no_rope_layers"},
      {"gguf_written/exaone4",
       {{"sliding_window", 7}, {"layer_types", {"sliding_attention", "full_attention"}}},
       "sliding_window"},
      {"gguf_written/olmoe", {{"clip_qkv", 0.5}}, "clip_qkv"},
      {"golden/afmoe_fourth", {{"mup_enabled", false}}, "mup_enabled"},
      {"golden/afmoe", Json::object(), "layer_types"},
      {"gguf_written/granitemoehybrid", {{"time_step_limit", {0.0, 0.5}}}, "time_step_limit"},
      {"golden/smollm3",
       {{"rope_parameters",
         {{"rope_type", "llama3"},
          {"rope_theta", 10000.0},
          {"factor", 4.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 64}}}},
       "rope_parameters"},
      {"golden/ernie4_5_moe_plain", {{"moe_norm_min", 0.4}}, "moe_norm_min"},
      {"golden/ernie4_5_moe", Json::object(), "lm_head.bias"},
      {"golden/mimo_v2_flash",
       {{"rope_parameters",
         {{"full_attention",
           {{"partial_rotary_factor", 0.334}, {"rope_theta", 5e6}, {"rope_type", "default"}}},
          {"sliding_attention",
           {{"partial_rotary_factor", 0.334},
            {"rope_theta", 1e4},
            {"rope_type", "linear"},
            {"factor", 2.0}}}}}},
       "rope_parameters.sliding_attention"},
      {"gguf_written/olmoe", {{"norm_topk_prob", true}}, "norm_topk_prob"},
      {"gguf_written/gpt2", {{"scale_attn_weights", false}}, "scale_attn_weights"},
      {"golden/gpt2_by_layer", Json::object(), "scale_attn_by_inverse_layer_idx"},
      {"golden/bloom",
       {{"apply_residual_connection_post_layernorm", true}},
       "apply_residual_connection_post_layernorm"},
      {"gguf_written/gpt_neox", {{"hidden_act", "relu"}}, "hidden_act"},
      {"golden/gemma4", Json::object(), "num_kv_shared_layers"},
      {"golden/gemma4_moe", {{"hidden_activation", "relu"}}, "hidden_act"},
      {"golden/gpt_oss_swiglu", Json::object(), "swiglu_alpha"},
      {"gguf_written/lfm2_moe", {{"routed_scaling_factor", 2.0}}, "routed_scaling_factor"},
      {"golden/llama4_text", Json::object(), "no_rope_layers"},
      {"gguf_written/llama4", {{"attention_chunk_size", 64}}, "attention_chunk_size"},
      {"gguf_written/llama4", {{"attn_temperature_tuning", false}}, "attn_temperature_tuning"},
      {"gguf_written/llama4", {{"attn_scale", 0.2}}, "attn_scale"},
      {"gguf_written/llama4", {{"floor_scale", 4096}}, "floor_scale"},
      {"gguf_written/llama4", {{"use_qk_norm", false}}, "use_qk_norm"},
      {"golden/dbrx", {{"attn_config", {{"kv_n_heads", 2}, {"clip_qkv", nullptr}}}}, "clip_qkv"},
      {"golden/mamba2", {{"time_step_limit", {0.0, 0.5}}}, "time_step_limit"},
      {"golden/falcon_mamba", {{"mixer_rms_eps", 1e-3}}, "mixer_rms_eps"},
      {"gguf_written/deepseek_v2",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 2}, {"topk_group", 1}},
       "topk_method"},
      {"gguf_written/deepseek_v3", {{"rms_norm_eps", 1e-5}}, "rms_norm_eps"},
      {"gguf_written/deepseek_v3", {{"rope_interleave", false}}, "rope_interleave"},
      {"gguf_written/deepseek_v3",
       {{"rope_parameters",
         {{"rope_type", "yarn"},
          {"rope_theta", 10000.0},
          {"factor", 4.0},
          {"original_max_position_embeddings", 32},
          {"mscale", 0.5},
          {"mscale_all_dim", 1.0}}}},
       "'rope_parameters.mscale'"},
      {"gguf_written/deepseek_v3",
       {{"rope_parameters",
         {{"rope_type", "yarn"},
          {"rope_theta", 10000.0},
          {"factor", 4.0},
          {"original_max_position_embeddings", 32},
          {"mscale", nullptr},
          {"mscale_all_dim", nullptr}}}},
       "rope_parameters.mscale_all_dim"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::string(c.checkpoint) + " " + c.field);
    const TempDir dir;
    const Outcome outcome = to_gguf(changed_config(dir, c.checkpoint, c.change), dir / "m.gguf");
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_NE(outcome.err.find(c.field), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "m.gguf"));
  }
}

using Kept = std::function<bool(const std::string& tensor)>;

// Expects that a checkpoint with these tensors left and this config changed is refused.
void expect_refused(const char* name, const Kept& kept, const Json& change, const char* reason) {
  SCOPED_TRACE(name);
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, name, [&](TensorFile& file) {
    TensorFile left = file;
    left.header.clear();
    left.data.clear();
    for (const auto& [tensor, row] : file.header.items()) {
      if (tensor == "__metadata__" || !kept(tensor)) continue;
      left.append(tensor, row["dtype"], row["shape"], file.bytes_of(tensor));
    }
    file = left;
  });
  change_config(source, change);
  const Outcome outcome = to_gguf(source, dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
}

bool is_of_first_layer(const std::string& tensor) {
  return tensor.find(".layers.") == std::string::npos ||
         tensor.find(".layers.0.") != std::string::npos;
}

TEST(GgufRefusals, BiasesThatReadersNeed) {
  expect_refused(
      "golden/starcoder2",
      [](const std::string& tensor) {
        return !tensor.ends_with("proj.bias") && !tensor.ends_with("c_fc.bias");
      },
      {{"use_bias", false}}, "has no tensor for 'blk.0.attn_output.bias'");
  expect_refused(
      "golden/gpt_oss",
      [](const std::string& tensor) {
        return tensor.find("self_attn") == std::string::npos || !tensor.ends_with(".bias");
      },
      {{"attention_bias", false}}, "has no tensor for 'blk.0.attn_q.bias'");
}

// llama.cpp does not open a file of this architecture with a bias of the output of attention.
TEST(GgufRefusals, BiasesThatReadersDoNotTake) {
  expect_refused(
      "golden/cohere",
      [](const std::string& tensor) {
        return tensor.find("_norm.") == std::string::npos ||
               tensor.find("self_attn") == std::string::npos;
      },
      {{"use_qk_norm", false}}, "model.layers.0.self_attn.o_proj.bias");
}

// llama.cpp does not open files of these architectures whose layers are all dense.
TEST(GgufRefusals, MixturesWithoutExperts) {
  constexpr const char* kReason = "'num_experts' or none is used";
  expect_refused("golden/ernie4_5_moe_plain", is_of_first_layer,
                 {{"num_hidden_layers", 1}, {"moe_layer_end_index", 1}}, kReason);
  expect_refused("golden/exaone_moe", is_of_first_layer,
                 {{"num_hidden_layers", 1},
                  {"layer_types", {"sliding_attention"}},
                  {"mlp_layer_types", {"dense"}}},
                 kReason);
}

// llama.cpp ends its process where no layer has full attention.
TEST(GgufRefusals, Qwen3NextWithoutFullAttention) {
  expect_refused("golden/qwen3_next_moe", is_of_first_layer,
                 {{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}},
                 "'layer_types' has no layer of full attention");
}

// llama.cpp gives a pair of dimensions whose section is full no position.
TEST(GgufRefusals, SectionsThatLeavePairsUnturned) {
  struct Case {
    Json sections;
    double theta;
    int code;
    const char* message;
  };
  const Case kCases[] = {
      {{2, 1, 1}, 1e4, 0, ""},
      {{2, 0, 2},
       1e4,
       4,
       "'rope_parameters.mrope_section' is such that readers do not turn pair 1"},
      {{2, 1, 0}, 1e4, 4, "do not turn pair 2"},
      {{2, 2, 0}, 1e12, 0, "does not apply RoPE to the pairs of dimensions 2, which"},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.sections.dump());
    const TempDir dir;
    Json text =
        Json::parse(read_bytes(fixture("gguf_written/qwen3_vl_moe/config.json")))["text_config"];
    text["rope_parameters"]["mrope_section"] = c.sections;
    text["rope_parameters"]["rope_theta"] = c.theta;
    const std::string source =
        changed_config(dir, "gguf_written/qwen3_vl_moe", {{"text_config", text}});
    const Outcome outcome = to_gguf(source, dir / "m.gguf");
    EXPECT_EQ(outcome.code, c.code) << outcome.err;
    EXPECT_NE(outcome.err.find(c.message), std::string::npos) << outcome.err;
    const bool says = outcome.err.find("pairs of dimensions") != std::string::npos;
    EXPECT_EQ(says, c.code == 0 && *c.message != 0) << outcome.err;
  }
}

// llama.cpp does not open a file whose heads do not share the hidden size.
TEST(GgufRefusals, Cohere2WithHeadsOfTheirOwnSize) {
  const TempDir dir;
  const Outcome outcome = to_gguf(fixture("golden/cohere2_head_dim"), dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("'head_dim' is not the hidden size divided by the heads"),
            std::string::npos)
      << outcome.err;
}

TEST(GgufRefusals, FamiliesAndTensorsWithoutAPlace) {
  const TempDir dir;
  const Outcome family = to_gguf(fixture("golden/codegen"), dir / "m.gguf");
  EXPECT_EQ(family.code, 4);
  EXPECT_NE(family.err.find("codegen"), std::string::npos) << family.err;
  // The short convolutions of lfm2, attention of gemma4_dense and the MLPs of the others have
  // biases.
  for (const char* name :
       {"golden/lfm2", "golden/seed_oss", "golden/ernie4_5", "golden/gemma4_dense"}) {
    const Outcome tensor = to_gguf(fixture(name), dir / "m.gguf");
    EXPECT_EQ(tensor.code, 4) << name;
    EXPECT_NE(tensor.err.find("bias"), std::string::npos) << tensor.err;
  }
}

}  // namespace
}  // namespace ferry::gguf_refusals_test
