// --to gguf from the command line: refusals, messages, and reading the files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::gguf_export_test {
namespace {

using Json = nlohmann::json;

Outcome to_gguf(const std::string& checkpoint, const std::string& out,
                const std::vector<std::string>& more = {}) {
  std::vector<std::string> args = {"convert", checkpoint, "--to", "gguf", "-o", out};
  args.insert(args.end(), more.begin(), more.end());
  return run_ferry(args);
}

// The file is read as a checkpoint with the values of its source.
TEST(GgufFile, IsReadWithTheSameOutputs) {
  for (const char* name : {"golden/llama",
                           "golden/granite",
                           "golden/olmo2",
                           "golden/gpt_oss",
                           "golden/arcee",
                           "golden/bloom",
                           "golden/dots1",
                           "golden/gemma4_moe",
                           "golden/gpt_bigcode",
                           "golden/olmo",
                           "gguf_written/granitemoe",
                           "gguf_written/qwen3_vl_moe",
                           "golden/mamba2",
                           "golden/mamba",
                           "golden/falcon_mamba",
                           "golden/jamba",
                           "golden/afmoe_fourth",
                           "golden/ernie4_5_moe_plain",
                           "golden/exaone_moe",
                           "golden/granitemoeshared",
                           "golden/hunyuan_v1_moe",
                           "golden/minimax_m2",
                           "gguf_written/llama4",
                           "golden/dbrx",
                           "golden/falcon",
                           "golden/falcon_multi_query",
                           "golden/cohere2_moe",
                           "golden/falcon_h1",
                           "gguf_written/minicpm3"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Outcome written = to_gguf(fixture(name), dir / "m.gguf", {"--outtype", "f32"});
    ASSERT_EQ(written.code, 0) << written.err;
    ASSERT_EQ(run_ferry({"convert", dir / "m.gguf", "-o", dir / "b"}).code, 0);
    const Outcome verified =
        run_ferry({"verify", dir / "b", "--reference",
                   fixture(std::string(name) + "/golden.safetensors"), "--json"});
    ASSERT_EQ(verified.code, 0) << verified.err;
    EXPECT_LT(verified.json()["metrics"]["max_abs"], 2e-4);
  }
}

TEST(GgufFile, TheAccountNamesItsTensors) {
  const Outcome plan = run_ferry(
      {"convert", fixture("golden/llama"), "--to", "gguf", "--outtype", "q8_0", "-n", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("blk.0.attn_q.weight"), std::string::npos);
  EXPECT_EQ(plan.out.find("layers.0.attention.wq.weight"), std::string::npos);
}

// Readers of GGUF files take these numbers as constants, and no key changes them.
TEST(GgufFile, WhatItCannotSayIsRefusedByName) {
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
       {{"layer_types",
         {"full_attention", "sliding_attention", "sliding_attention", "full_attention"}}},
       "layer_types"},
      {"gguf_written/exaone4",
       {{"sliding_window", 7}, {"layer_types", {"sliding_attention", "full_attention"}}},
       "sliding_window"},
      {"gguf_written/olmoe", {{"clip_qkv", 0.5}}, "clip_qkv"},
      {"golden/afmoe_fourth", {{"mup_enabled", false}}, "mup_enabled"},
      {"golden/afmoe", Json::object(), "layer_types"},
      {"golden/ernie4_5_moe_plain", {{"moe_norm_min", 0.4}}, "moe_norm_min"},
      {"golden/ernie4_5_moe", Json::object(), "lm_head.bias"},
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
    const Outcome outcome =
        to_gguf(changed_config(dir, c.checkpoint, c.change), dir / "m.gguf", {});
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_NE(outcome.err.find(c.field), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "m.gguf"));
  }
}

TEST(GgufFile, FamiliesAndTensorsWithoutAPlaceAreRefused) {
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

// Blocks cannot represent these values, and 65504 is the largest scale in f16.
TEST(GgufFile, ValuesWithoutABlockAreRefused) {
  const auto set_first = [](float value) {
    return [value](TensorFile& file) {
      const std::string name = "model.layers.0.mlp.down_proj.weight";
      std::string bytes = file.bytes_of(name);
      std::memcpy(bytes.data(), &value, sizeof value);
      file.set_bytes(name, bytes);
    };
  };
  const std::string non_finite = "NaN and infinity cannot be quantised: 1 value (";
  const std::pair<float, std::string> cases[] = {
      {std::nanf(""), non_finite},
      {std::numeric_limits<float>::infinity(), non_finite},
      {1e9f, "32 values of blocks whose scale is too large for f16 ("}};
  for (const auto& [value, reason] : cases) {
    const TempDir dir;
    const std::string changed = changed_checkpoint(dir, "llama3_tied", set_first(value));
    const Outcome outcome = to_gguf(changed, dir / "m.gguf", {"--outtype", "q8_0"});
    EXPECT_EQ(outcome.code, 4) << outcome.out;
    EXPECT_NE(outcome.err.find("down_proj"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "m.gguf"));
  }
}

TEST(GgufFile, OptionsThatMakeNoSenseAreRefused) {
  const TempDir dir;
  const auto refused = [](const Outcome& outcome, const char* option) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(option), std::string::npos) << outcome.err;
  };
  refused(to_gguf(fixture("golden/llama"), dir / "m.gguf", {"--dtype", "f16"}), "--outtype");
  refused(run_ferry({"convert", fixture("golden/llama"), "-o", dir / "b", "--outtype", "f16"}),
          "--outtype");
  refused(run_ferry({"convert", fixture("golden/llama"), "-o", dir / "b", "--name", "x"}),
          "--name");
  // A source with copied keys and a checkpoint without a tokenizer have no pre-tokenizer.
  ASSERT_EQ(to_gguf(fixture("golden/llama"), dir / "a.gguf").code, 0);
  for (const std::string& source : {dir / "a.gguf", fixture("golden/llama")}) {
    refused(to_gguf(source, dir / "m.gguf", {"--tokenizer-pre", "llama-bpe"}), "--tokenizer-pre");
  }
}

}  // namespace
}  // namespace ferry::gguf_export_test
