// --to gguf from the command line: messages, heads, and reading the files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
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
