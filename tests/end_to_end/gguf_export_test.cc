// --to gguf from the command line: refusals, messages, and reading the files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"
#include "tests/end_to_end/verb_outcomes.h"

namespace ferry::gguf_export_test {
namespace {

using verb_outcomes::change_config;
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
                           "golden/apertus",
                           "source/t5_gated",
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
    const Outcome outcome =
        to_gguf(changed_config(dir, c.checkpoint, c.change), dir / "m.gguf", {});
    EXPECT_EQ(outcome.code, 4) << outcome.err;
    EXPECT_NE(outcome.err.find(c.field), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "m.gguf"));
  }
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// Multiplies floats by 2; `lowest` is the bits of the least normal number of their dtype.
template <typename Bits>
std::string doubled_bits(std::string bytes, Bits lowest) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, &bytes[at], sizeof bits);
    const auto magnitude = static_cast<Bits>(bits << 1U) >> 1U;
    bits = static_cast<Bits>(bits + (magnitude < lowest ? magnitude : lowest));
    std::memcpy(&bytes[at], &bits, sizeof bits);
  }
  return bytes;
}

std::string doubled(const std::string& bytes, const std::string& dtype) {
  if (dtype == "F32") return doubled_bits<uint32_t>(bytes, 0x800000);
  return doubled_bits<uint16_t>(bytes, dtype == "F16" ? 0x400 : 0x80);
}

// Gives a checkpoint a head of its own, the embedding times 2, or one equal to the embedding.
void set_head(TensorFile& file, bool own) {
  const Json row = file.header[kEmbedding];
  std::string bytes = file.bytes_of(kEmbedding);
  if (own) bytes = doubled(bytes, std::string(row["dtype"]));
  if (file.header.contains(kHead)) return file.set_bytes(kHead, bytes);
  file.append(kHead, row["dtype"], row["shape"], bytes);
}

std::string with_head(const TempDir& dir, const std::string& name, bool own, const Json& stated) {
  const std::string made =
      changed_checkpoint(dir, name, [own](TensorFile& file) { set_head(file, own); });
  Json config = Json::parse(read_bytes(made + "/config.json"));
  config.erase("tie_word_embeddings");
  config.update(stated);
  write_bytes(made + "/config.json", config.dump());
  return made;
}

// transformers does not tie a head that the checkpoint has with other values. Twice the embedding
// gives twice the logits.
TEST(GgufFile, AHeadOfItsOwnIsWrittenWhereTheConfigTiesItByDefault) {
  const TempDir dir;
  const std::string source = with_head(dir, "golden/starcoder2", true, Json::object());
  const Outcome written = to_gguf(source, dir / "m.gguf", {"--outtype", "f32"});
  ASSERT_EQ(written.code, 0) << written.err;
  const Outcome read =
      run_ferry({"convert", dir / "m.gguf", "--config", source + "/config.json", "-o", dir / "b"});
  ASSERT_EQ(read.code, 0) << read.err;
  TensorFile golden(fixture("golden/starcoder2/golden.safetensors"));
  for (const char* name : {"short.logits", "long.logits"}) {
    golden.set_bytes(name, doubled(golden.bytes_of(name), "F32"));
  }
  golden.write(dir / "twice.safetensors");
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", dir / "twice.safetensors", "--json"});
  ASSERT_EQ(verified.code, 0) << verified.err;
  EXPECT_LT(verified.json()["metrics"]["max_abs"], 2e-4);
}

// llama.cpp (0.3.36 of its Python package) loads no files of these without a head.
TEST(GgufFile, TheEmbeddingIsTheHeadWhereReadersTieNone) {
  for (const char* name : {"gguf_written/nemotron", "gguf_written/phi", "gguf_written/stablelm",
                           "golden/dots1", "golden/exaone_moe", "golden/gpt_oss"}) {
    const TempDir dir;
    const std::string tied = with_head(dir, name, false, {{"tie_word_embeddings", true}});
    const Outcome outcome = to_gguf(tied, dir / "m.gguf", {"--outtype", "f32"});
    ASSERT_EQ(outcome.code, 0) << name << outcome.err;
    EXPECT_EQ(run_ferry({"verify", dir / "m.gguf", "--checkpoint", tied}).code, 0) << name;
    const Outcome back = run_ferry({"convert", dir / "m.gguf", "--to", "hf", "-o", dir / "hf"});
    ASSERT_EQ(back.code, 0) << name << back.err;
    TensorFile file(dir / "hf/model.safetensors");
    EXPECT_EQ(file.bytes_of(kHead), file.bytes_of(kEmbedding)) << name;
  }
}

// It loads no files of these with a head.
TEST(GgufFile, HeadsThatReadersDoNotTakeAreRefused) {
  const std::pair<const char*, const char*> kTied[] = {
      {"gguf_written/cohere", "'tie_word_embeddings' is false"},
      {"gguf_written/cohere2", "'tie_word_embeddings' is false"},
      {"golden/gemma", kHead}};
  for (const auto& [name, reason] : kTied) {
    const TempDir dir, same;
    const std::string own = with_head(dir, name, true, {{"tie_word_embeddings", false}});
    const Outcome outcome = to_gguf(own, dir / "m.gguf");
    EXPECT_EQ(outcome.code, 4) << name << outcome.err;
    EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
    const std::string tied = with_head(same, name, false, Json::object());
    const Outcome written = to_gguf(tied, same / "m.gguf");
    EXPECT_EQ(written.code, 0) << name << written.err;
  }
}

// Leaves tensors out of a checkpoint.
void keep(TensorFile& file, const std::function<bool(const std::string&)>& kept) {
  TensorFile left = file;
  left.header.clear();
  left.data.clear();
  for (const auto& [name, row] : file.header.items()) {
    if (name == "__metadata__" || !kept(name)) continue;
    left.append(name, row["dtype"], row["shape"], file.bytes_of(name));
  }
  file = left;
}

// Readers need the biases of starcoder2.
TEST(GgufFile, Starcoder2WithoutBiasesIsRefused) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/starcoder2", [](TensorFile& file) {
    keep(file, [](const std::string& name) {
      return !name.ends_with("proj.bias") && !name.ends_with("c_fc.bias");
    });
  });
  change_config(source, {{"use_bias", false}});
  const Outcome outcome = to_gguf(source, dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("has no tensor for 'blk.0.attn_output.bias'"), std::string::npos)
      << outcome.err;
}

// llama.cpp does not open files of these architectures whose layers are all dense.
TEST(GgufFile, MixturesWithoutExpertsAreRefused) {
  const std::pair<const char*, Json> kDense[] = {
      {"golden/ernie4_5_moe_plain", {{"num_hidden_layers", 1}, {"moe_layer_end_index", 1}}},
      {"golden/exaone_moe",
       {{"num_hidden_layers", 1},
        {"layer_types", {"sliding_attention"}},
        {"mlp_layer_types", {"dense"}}}}};
  for (const auto& [name, change] : kDense) {
    const TempDir dir;
    const std::string source = changed_checkpoint(dir, name, [](TensorFile& file) {
      keep(file, [](const std::string& tensor) {
        return tensor.find(".layers.") == std::string::npos ||
               tensor.find(".layers.0.") != std::string::npos;
      });
    });
    change_config(source, change);
    const Outcome outcome = to_gguf(source, dir / "m.gguf");
    EXPECT_EQ(outcome.code, 4) << name << outcome.err;
    EXPECT_NE(outcome.err.find("'num_experts' or none is used"), std::string::npos) << outcome.err;
  }
}

// Readers need the biases of gpt-oss.
TEST(GgufFile, GptOssWithoutBiasesIsRefused) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/gpt_oss", [](TensorFile& file) {
    keep(file, [](const std::string& name) {
      return name.find("self_attn") == std::string::npos || !name.ends_with(".bias");
    });
  });
  change_config(source, {{"attention_bias", false}});
  const Outcome outcome = to_gguf(source, dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("has no tensor for 'blk.0.attn_q.bias'"), std::string::npos)
      << outcome.err;
}

// llama.cpp gives a pair of dimensions whose section is full no position.
TEST(GgufFile, SectionsThatLeavePairsUnturnedAreRefused) {
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

// Without the key, llama.cpp caps the logits of gemma4 at 30.
TEST(GgufFile, Gemma4WithoutACapOfLogitsSaysSo) {
  const TempDir dir;
  const std::string source =
      changed_config(dir, "golden/gemma4_moe", {{"final_logit_softcapping", nullptr}});
  ASSERT_EQ(to_gguf(source, dir / "m.gguf").code, 0);
  EXPECT_NE(read_bytes(dir / "m.gguf").find("gemma4.final_logit_softcapping"), std::string::npos);
  const Outcome back = run_ferry({"convert", dir / "m.gguf", "--to", "hf", "-o", dir / "hf"});
  ASSERT_EQ(back.code, 0) << back.err;
  const Json config = Json::parse(read_bytes(dir / "hf/config.json"));
  EXPECT_TRUE(config["final_logit_softcapping"].is_null()) << config;
}

// llama.cpp does not open a file whose heads do not share the hidden size.
TEST(GgufFile, Cohere2WithHeadsOfTheirOwnSizeIsRefused) {
  const TempDir dir;
  const Outcome outcome = to_gguf(fixture("golden/cohere2_head_dim"), dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("'head_dim' is not the hidden size divided by the heads"),
            std::string::npos)
      << outcome.err;
}

// llama.cpp does not open a file of this architecture with a bias of the output of attention.
TEST(GgufFile, CohereWithBiasesIsRefused) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/cohere", [](TensorFile& file) {
    keep(file, [](const std::string& name) {
      return name.find("_norm.") == std::string::npos ||
             name.find("self_attn") == std::string::npos;
    });
  });
  change_config(source, {{"use_qk_norm", false}});
  const Outcome outcome = to_gguf(source, dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("model.layers.0.self_attn.o_proj.bias"), std::string::npos)
      << outcome.err;
}

// llama.cpp ends its process where no layer has full attention.
TEST(GgufFile, Qwen3NextWithoutFullAttentionIsRefused) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/qwen3_next_moe", [](TensorFile& file) {
    keep(file, [](const std::string& name) {
      return !name.starts_with("model.layers.") || name.starts_with("model.layers.0.");
    });
  });
  change_config(source, {{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}});
  const Outcome outcome = to_gguf(source, dir / "m.gguf");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("'layer_types' has no layer of full attention"), std::string::npos)
      << outcome.err;
}

// llama.cpp ends its process where no group of experts is left out.
TEST(GgufFile, ExpertGroupsOfWhichNoneIsLeftOutAreOneGroup) {
  const TempDir dir;
  const std::string source =
      changed_config(dir, "gguf_written/deepseek_v3", {{"n_group", 2}, {"topk_group", 2}});
  const Outcome written = to_gguf(source, dir / "m.gguf");
  ASSERT_EQ(written.code, 0) << written.err;
  const std::string bytes = read_bytes(dir / "m.gguf");
  for (const std::string key :
       {"deepseek2.expert_group_count", "deepseek2.expert_group_used_count"}) {
    const size_t at = bytes.find(key);
    ASSERT_NE(at, std::string::npos);
    uint32_t value = 0;
    std::memcpy(&value, &bytes[at + key.size() + sizeof(uint32_t)], sizeof value);
    EXPECT_EQ(value, 1U) << key;
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
