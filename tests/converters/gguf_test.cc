// GGUF as a Hugging Face checkpoint: layouts against the index rules of GGUF writers, config from
// metadata, RoPE factors.

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "converters/gguf/adopt.h"
#include "converters/gguf/rope_factors.h"
#include "converters/model_config.h"

namespace ferry {
namespace {

using Json = nlohmann::json;
using Floats = std::vector<float>;

class Memory : public TensorSource {
 public:
  void add(const std::string& name, const Shape& shape, Floats values = {}) {
    const auto count = static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
    if (values.empty()) {
      for (size_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i) + 0.5f);
    }
    ASSERT_EQ(values.size(), count) << name;
    entries_.push_back({.name = name,
                        .dtype = DType::kF32,
                        .shape = shape,
                        .bytes = count * sizeof(float),
                        .offset = entries_.size()});
    values_.push_back(std::move(values));
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const auto bytes = std::as_bytes(std::span(values_.at(index))).subspan(offset, out.size());
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return {};
  }

 private:
  std::string path_ = "m.gguf";
  std::vector<SourceFile> files_ = {{"m.gguf", 0}};
  std::vector<TensorEntry> entries_;
  std::vector<Floats> values_;
};

Json llama_keys() {
  return {{"general.architecture", "llama"},    {"llama.block_count", 1},
          {"llama.context_length", 128},        {"llama.embedding_length", 8},
          {"llama.feed_forward_length", 6},     {"llama.attention.head_count", 2},
          {"llama.attention.head_count_kv", 1}, {"llama.attention.layer_norm_rms_epsilon", 1e-5},
          {"llama.rope.freq_base", 500000.0},   {"tokenizer.ggml.bos_token_id", 1},
          {"tokenizer.ggml.eos_token_id", 2}};
}

// Two key heads of 2, four value heads of 3, three linear layers and a full one.
Json hybrid_keys(const std::string& architecture) {
  Json keys = {{"general.architecture", architecture}};
  const auto set = [&](const char* key, Json value) { keys[architecture + "." + key] = value; };
  set("block_count", 4);
  set("context_length", 64);
  set("embedding_length", 5);
  set("feed_forward_length", 6);
  set("attention.head_count", 2);
  set("attention.head_count_kv", 1);
  set("attention.key_length", 8);
  set("attention.value_length", 8);
  set("attention.layer_norm_rms_epsilon", 1e-6);
  set("rope.freq_base", 1e7);
  set("rope.dimension_count", 2);
  set("ssm.conv_kernel", 4);
  set("ssm.state_size", 2);
  set("ssm.group_count", 2);
  set("ssm.time_step_rank", 4);
  set("ssm.inner_size", 12);
  set("full_attention_interval", 4);
  return keys;
}

std::unique_ptr<Memory> memory() {
  auto source = std::make_unique<Memory>();
  source->add("token_embd.weight", {10, 8});
  return source;
}

Result<AdoptedGguf> adopt(const Json& keys, std::unique_ptr<Memory> source = memory(),
                          const std::string& user = {}) {
  return adopt_gguf(std::move(source), keys, user, "user.json");
}

Floats values_of(const TensorSource& source, const std::string& name) {
  for (size_t i = 0; i < source.entries().size(); ++i) {
    if (source.entries()[i].name != name) continue;
    Floats values(source.entries()[i].bytes / sizeof(float));
    EXPECT_TRUE(source.read(i, 0, std::as_writable_bytes(std::span(values))));
    return values;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

// -- layouts: GGUF row g of a tensor is row index[g] of the Hugging Face one
// --------------------------------------------------------------------------------------

using Index = std::vector<int64_t>;

Index identity(int64_t count) {
  Index index(static_cast<size_t>(count));
  std::iota(index.begin(), index.end(), 0);
  return index;
}

// Row 2j + s of each head of d rows is row s * d/2 + j.
Index rope_permute(int64_t heads, int64_t d) {
  Index index;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t g = 0; g < d; ++g) index.push_back(h * d + g % 2 * (d / 2) + g / 2);
  }
  return index;
}

// Head t * nk + k is head k * r + t, of `d` rows, from row `from` on.
Index grouped_to_tiled(int64_t from, int64_t nk, int64_t nv, int64_t d) {
  Index index = identity(from);
  for (int64_t g = 0; g < nv; ++g) {
    const int64_t head = g % nk * (nv / nk) + g / nk;
    for (int64_t i = 0; i < d; ++i) index.push_back(from + head * d + i);
  }
  return index;
}

// Both parts of in_proj_qkvz, which has q, k, v.., z.. per key head.
Index packed_rows(int64_t nk, int64_t dk, int64_t dv, std::initializer_list<int> parts) {
  const int64_t begins[] = {0, dk, 2 * dk, 2 * dk + dv}, sizes[] = {dk, dk, dv, dv};
  Index index;
  for (const int part : parts) {
    for (int64_t k = 0; k < nk; ++k) {
      for (int64_t i = 0; i < sizes[part]; ++i) {
        index.push_back(k * (2 * dk + 2 * dv) + begins[part] + i);
      }
    }
  }
  return index;
}

// Takes rows of [rows, columns], or columns.
Floats take(const Floats& values, int64_t columns, const Index& index, bool of_columns = false) {
  Floats out;
  const auto rows = static_cast<int64_t>(values.size()) / columns;
  for (int64_t i = 0; i < (of_columns ? rows : std::ssize(index)); ++i) {
    for (int64_t j = 0; j < (of_columns ? std::ssize(index) : columns); ++j) {
      const int64_t row = of_columns ? i : index[static_cast<size_t>(i)];
      const int64_t column = of_columns ? index[static_cast<size_t>(j)] : j;
      out.push_back(values[static_cast<size_t>(row * columns + column)]);
    }
  }
  return out;
}

struct LayoutCase {
  const char* gguf;
  const char* hf;
  Shape stored, shape;
  Index index;  // of rows
  bool of_columns = false;
};

Floats numbered(const Shape& shape) {
  Floats values(static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

void expect_inverse(const Json& keys, const std::vector<LayoutCase>& cases) {
  auto source = memory();
  for (const LayoutCase& c : cases) {
    source->add(c.gguf, c.stored, take(numbered(c.shape), c.stored.back(), c.index, c.of_columns));
  }
  const auto adopted = adopt(keys, std::move(source));
  ASSERT_TRUE(adopted) << adopted.error().message;
  for (const LayoutCase& c : cases) {
    EXPECT_EQ(values_of(*adopted->source, c.hf), numbered(c.shape)) << c.gguf;
    for (const TensorEntry& entry : adopted->source->entries()) {
      if (entry.name != c.hf) continue;
      EXPECT_EQ(entry.shape, c.shape) << c.gguf;
      EXPECT_EQ(entry.original, c.gguf);
    }
  }
}

TEST(Gguf, PairedHeadsOfLlamaBecomeHalves) {
  expect_inverse(llama_keys(), {{"blk.0.attn_q.weight",
                                 "model.layers.0.self_attn.q_proj.weight",
                                 {8, 3},
                                 {8, 3},
                                 rope_permute(2, 4)},
                                {"blk.0.attn_k.weight",
                                 "model.layers.0.self_attn.k_proj.weight",
                                 {4, 3},
                                 {4, 3},
                                 rope_permute(1, 4)},
                                {"blk.0.attn_v.weight",
                                 "model.layers.0.self_attn.v_proj.weight",
                                 {4, 3},
                                 {4, 3},
                                 identity(4)}});
}

TEST(Gguf, TiledValueHeadsBecomeGrouped) {
  const Index v3 = grouped_to_tiled(0, 2, 4, 3), v1 = grouped_to_tiled(0, 2, 4, 1);
  const Index qkv = grouped_to_tiled(8, 2, 4, 3);
  ASSERT_EQ(v1, (Index{0, 2, 1, 3}));
  const std::string attn = "model.layers.0.linear_attn.";
  const std::string names[] = {
      attn + "in_proj_qkv.weight", attn + "in_proj_z.weight", attn + "in_proj_b.weight",
      attn + "in_proj_a.weight",   attn + "dt_bias",          attn + "conv1d.weight",
      attn + "out_proj.weight"};
  expect_inverse(hybrid_keys("qwen35"),
                 {{"blk.0.attn_qkv.weight", names[0].c_str(), {20, 5}, {20, 5}, qkv},
                  {"blk.0.attn_gate.weight", names[1].c_str(), {12, 5}, {12, 5}, v3},
                  {"blk.0.ssm_beta.weight", names[2].c_str(), {4, 5}, {4, 5}, v1},
                  {"blk.0.ssm_alpha.weight", names[3].c_str(), {4, 5}, {4, 5}, v1},
                  {"blk.0.ssm_conv1d.weight", names[5].c_str(), {20, 4}, {20, 1, 4}, qkv},
                  {"blk.0.ssm_out.weight", names[6].c_str(), {5, 12}, {5, 12}, v3, true}});
  // One element per head: rows of one column.
  auto source = memory();
  source->add("blk.0.ssm_dt.bias", {4}, {1, 3, 2, 4});
  source->add("blk.0.ssm_a", {4}, {-std::exp(1.0f), -std::exp(3.0f), -1.0f, -std::exp(0.5f)});
  const auto adopted = adopt(hybrid_keys("qwen35"), std::move(source)).value();
  EXPECT_EQ(values_of(*adopted.source, names[4]), (Floats{1, 2, 3, 4}));
  const Floats logs = values_of(*adopted.source, attn + "A_log");
  const Floats expected = {1.0f, 0.0f, 3.0f, 0.5f};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(logs[i], expected[i], 1e-6);
}

TEST(Gguf, InputProjectionOfQwen3NextIsPackedAgain) {
  // Key heads of 2, two value heads of 3 for each: groups of 2, 2, 6 and 6 rows.
  const Floats packed = numbered({32, 5});
  auto source = memory();
  source->add("blk.1.attn_qkv.weight", {20, 5}, take(packed, 5, packed_rows(2, 2, 6, {0, 1, 2})));
  source->add("blk.1.attn_gate.weight", {12, 5}, take(packed, 5, packed_rows(2, 2, 6, {3})));
  source->add("blk.1.ssm_ba.weight", {8, 5});
  source->add("blk.1.ssm_conv1d.weight", {20, 4});
  source->add("blk.1.ffn_gate_inp_shexp.weight", {5});
  source->add("blk.1.ffn_up_exps.weight", {3, 2, 5});
  const auto adopted = adopt(hybrid_keys("qwen3next"), std::move(source)).value();
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(values_of(*adopted.source, layer + "linear_attn.in_proj_qkvz.weight"), packed);
  std::map<std::string, Shape> shapes;
  for (const TensorEntry& entry : adopted.source->entries()) shapes[entry.name] = entry.shape;
  EXPECT_EQ(shapes[layer + "linear_attn.in_proj_qkvz.weight"], (Shape{32, 5}));
  EXPECT_EQ(shapes[layer + "linear_attn.conv1d.weight"], (Shape{20, 1, 4}));
  EXPECT_EQ(shapes[layer + "mlp.shared_expert_gate.weight"], (Shape{1, 5}));
  for (int expert = 0; expert < 3; ++expert) {
    const Floats all =
        values_of(*adopted.source, fmt::format("{}mlp.experts.{}.up_proj.weight", layer, expert));
    ASSERT_EQ(all.size(), 10u);
    EXPECT_EQ(all[0], static_cast<float>(10 * expert) + 0.5f);
  }
}

TEST(Gguf, NormsAreShiftedWhereWritersShiftThem) {
  const struct {
    Json keys;
    const char* gguf;
    const char* hf;
    float expected;
  } kCases[] = {
      {llama_keys(), "blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight", 1.25f},
      {hybrid_keys("qwen35"), "blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight",
       0.25f},
      {hybrid_keys("qwen35"), "blk.3.attn_q_norm.weight", "model.layers.3.self_attn.q_norm.weight",
       0.25f},
      {hybrid_keys("qwen35"), "output_norm.weight", "model.norm.weight", 0.25f},
      {hybrid_keys("qwen35"), "blk.0.ssm_norm.weight", "model.layers.0.linear_attn.norm.weight",
       1.25f},
      {hybrid_keys("qwen3next"), "blk.0.post_attention_norm.weight",
       "model.layers.0.post_attention_layernorm.weight", 0.25f},
      {hybrid_keys("qwen3next"), "blk.0.ssm_norm.weight", "model.layers.0.linear_attn.norm.weight",
       1.25f},
  };
  for (const auto& c : kCases) {
    auto source = memory();
    source->add(c.gguf, {2}, {1.25f, 1.25f});
    const auto adopted = adopt(c.keys, std::move(source)).value();
    EXPECT_EQ(values_of(*adopted.source, c.hf), (Floats{c.expected, c.expected})) << c.gguf;
  }
}

TEST(Gguf, WhatIsNotOfTheModelKeepsItsName) {
  Json keys = hybrid_keys("qwen35");
  keys["qwen35.block_count"] = 5;
  keys["qwen35.nextn_predict_layers"] = 1;
  auto source = memory();
  for (const char* name : {"blk.0.attn_sinks.weight", "blk.00.attn_norm.weight",
                           "blk.4.attn_norm.weight", "rope_freqs", "blk.0.ssm_ba.weight"}) {
    source->add(name, {4});
  }
  const auto adopted = adopt(keys, std::move(source)).value();
  std::map<std::string, std::string> names;
  for (const TensorEntry& entry : adopted.source->entries()) names[entry.original] = entry.name;
  EXPECT_EQ(names["blk.0.attn_sinks.weight"], "gguf:blk.0.attn_sinks.weight");
  EXPECT_EQ(names["blk.00.attn_norm.weight"], "gguf:blk.00.attn_norm.weight");
  EXPECT_EQ(names["blk.4.attn_norm.weight"], "mtp.blk.4.attn_norm.weight");
  EXPECT_EQ(names["rope_freqs"], "gguf:rope_freqs");
  EXPECT_EQ(names["blk.0.ssm_ba.weight"], "gguf:blk.0.ssm_ba.weight");
  EXPECT_EQ(names["token_embd.weight"], "model.embed_tokens.weight");
  EXPECT_EQ(Json::parse(adopted.config)["num_hidden_layers"], 4);
}

TEST(Gguf, RefusesTensorsThatCannotBeWhatTheyAreCalled) {
  const struct {
    Json keys;
    const char* name;
    Shape shape;
    Floats values;
    const char* message;
  } kCases[] = {
      {llama_keys(),
       "blk.0.attn_q.weight",
       {6, 3},
       {},
       "m.gguf: the config wants 8 rows (tensor 'blk.0.attn_q.weight' [6, 3])"},
      {llama_keys(),
       "model.layers.0.self_attn.q_proj.weight",
       {8, 3},
       {},
       "m.gguf: a Hugging Face name in a GGUF file: whether its values were adjusted as GGUF has "
       "them cannot be known (tensor 'model.layers.0.self_attn.q_proj.weight' [8, 3])"},
      {hybrid_keys("qwen35"),
       "blk.0.ssm_a",
       {4},
       {-1.0f, 0.5f, -2.0f, -1.0f},
       "m.gguf: element 1 is 0.5, expected -exp(A_log), which is negative: this file does not have "
       "the values of GGUF (tensor 'blk.0.ssm_a' [4])"},
      {hybrid_keys("qwen3next"),
       "blk.0.ssm_a",
       {4},
       {-1.0f, -1.0f, -1.0f, NAN},
       "m.gguf: element 3 is nan, expected -exp(A_log), which is negative: this file does not have "
       "the values of GGUF (tensor 'blk.0.ssm_a' [4])"},
      {hybrid_keys("qwen35"),
       "blk.0.ssm_out.weight",
       {5, 10},
       {},
       "m.gguf: the config wants 12 columns (tensor 'blk.0.ssm_out.weight' [5, 10])"},
      {hybrid_keys("qwen35"),
       "blk.0.ssm_conv1d.weight",
       {20},
       {},
       "m.gguf: expected two dimensions (tensor 'blk.0.ssm_conv1d.weight' [20])"},
      {hybrid_keys("qwen3next"),
       "blk.0.attn_qkv.weight",
       {20, 5},
       {},
       "m.gguf: there is no 'blk.0.attn_gate.weight' for it (tensor 'blk.0.attn_qkv.weight' [20, "
       "5])"},
      {hybrid_keys("qwen3next"),
       "blk.0.ffn_up_exps.weight",
       {20, 5},
       {},
       "m.gguf: expected three dimensions (tensor 'blk.0.ffn_up_exps.weight' [20, 5])"},
  };
  for (const auto& c : kCases) {
    auto source = memory();
    source->add(c.name, c.shape, c.values);
    const auto adopted = adopt(c.keys, std::move(source));
    ASSERT_FALSE(adopted) << c.message;
    EXPECT_EQ(adopted.error().message, c.message);
    EXPECT_EQ(adopted.error().code, ErrorCode::kBadInput);
  }
}

// -- config
// --------------------------------------------------------------------------------------

TEST(GgufConfig, IsThatOfTheModel) {
  auto source = memory();
  source->add("output.weight", {10, 8});
  const auto adopted = adopt(llama_keys(), std::move(source)).value();
  const ModelConfig config = parse_model_config(adopted.config, adopted.generation, "c").value();
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.vocab_size, 10);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.intermediate_size, 6);
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.num_heads, 2);
  EXPECT_EQ(config.num_kv_heads, 1);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.max_positions, 128);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{2}));
}

TEST(GgufConfig, OfAHybrid) {
  Json keys = hybrid_keys("qwen35");
  keys["qwen35.attention.recurrent_layers"] = {false, true, true, false};
  const ModelConfig config = parse_model_config(adopt(keys).value().config, "", "c").value();
  EXPECT_EQ(config.linear.key_heads, 2);
  EXPECT_EQ(config.linear.value_heads, 4);
  EXPECT_EQ(config.linear.key_dim, 2);
  EXPECT_EQ(config.linear.value_dim, 3);
  EXPECT_EQ(config.linear.conv_kernel, 4);
  EXPECT_EQ(config.rotary_dim(), 2);
  EXPECT_EQ(config.layer_types,
            (std::vector{LayerType::kFullAttention, LayerType::kLinearAttention,
                         LayerType::kLinearAttention, LayerType::kFullAttention}));
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(GgufConfig, RefusesMetadataThatLacksOrContradicts) {
  const struct {
    const char* key;
    Json value;  // null: without the key
    ErrorCode code;
    const char* message;
  } kCases[] = {
      {"general.architecture", nullptr, ErrorCode::kBadInput,
       "m.gguf: 'general.architecture' is missing"},
      {"general.architecture", 7, ErrorCode::kBadInput,
       "m.gguf: 'general.architecture' is not a string"},
      {"general.architecture", "gpt\n2", ErrorCode::kUnsupported,
       "m.gguf: 'general.architecture' is 'gpt\\n2'; supported are llama, qwen2, qwen2moe, qwen3, "
       "qwen3moe, qwen35, qwen3next, gemma3"},
      {"general.type", "adapter", ErrorCode::kUnsupported,
       "m.gguf: 'general.type' is 'adapter': only models can be converted"},
      {"llama.context_length", nullptr, ErrorCode::kBadInput,
       "m.gguf: the metadata lack llama.context_length; give --config FILE"},
      {"llama.block_count", nullptr, ErrorCode::kBadInput,
       "m.gguf: the metadata lack llama.block_count; give --config FILE"},
      {"llama.block_count", "two", ErrorCode::kBadInput,
       "m.gguf: 'llama.block_count' is not an integer"},
      {"llama.block_count", 0, ErrorCode::kBadInput,
       "m.gguf: 'llama.block_count' is 0, not from 1 to 131072"},
      {"llama.block_count", 100000, ErrorCode::kBadInput,
       "m.gguf (metadata): 'num_hidden_layers' is 100000, not from 1 to 1024"},
      {"llama.nextn_predict_layers", 1, ErrorCode::kBadInput,
       "m.gguf: 'llama.nextn_predict_layers' leaves no layer of the model"},
      {"llama.embedding_length", -8, ErrorCode::kBadInput,
       "m.gguf: 'llama.embedding_length' is -8, not from 0 to 2147483647"},
      {"llama.attention.head_count", 3, ErrorCode::kBadInput,
       "m.gguf: 'llama.attention.head_count' does not divide the embedding length"},
      {"llama.attention.layer_norm_rms_epsilon", NAN, ErrorCode::kBadInput,
       "m.gguf: 'llama.attention.layer_norm_rms_epsilon' is nan, not from 1e-30 to "
       "1000000000000000"},
      {"llama.attention.value_length", 5, ErrorCode::kUnsupported,
       "m.gguf: 'llama.attention.value_length' differs from the length of keys"},
      {"llama.rope.dimension_count", 2, ErrorCode::kUnsupported,
       "m.gguf: 'llama.rope.dimension_count' turns a part of each head: not supported"},
      {"llama.rope.dimension_count", 6, ErrorCode::kBadInput,
       "m.gguf: 'llama.rope.dimension_count' is above the size of a head"},
      {"llama.rope.scaling.type", "yarn", ErrorCode::kUnsupported,
       "m.gguf: 'llama.rope.scaling.type' is 'yarn': not supported"},
      {"llama.rope.scaling.type", "linear", ErrorCode::kBadInput,
       "m.gguf: 'llama.rope.scaling.factor' is missing"},
      {"llama.expert_count", 8, ErrorCode::kUnsupported,
       "m.gguf: 'llama.expert_count' is not 0: not supported in this architecture"},
  };
  for (const auto& c : kCases) {
    Json keys = llama_keys();
    keys.erase(c.key);
    if (!c.value.is_null()) keys[c.key] = c.value;
    const auto adopted = adopt(keys);
    ASSERT_FALSE(adopted) << c.message;
    EXPECT_EQ(adopted.error().message, c.message);
    EXPECT_EQ(adopted.error().code, c.code) << c.message;
  }
}

TEST(GgufConfig, TheUsersConfigAddsWhatIsMissing) {
  Json keys = llama_keys();
  keys.erase("llama.context_length");
  const std::string user =
      R"({"model_type": "mistral", "sliding_window": 16, "max_position_embeddings": 99})";
  const auto adopted = adopt(keys, memory(), user).value();
  EXPECT_EQ(adopted.config_name, "user.json");
  const ModelConfig config = parse_model_config(adopted.config, "", "c").value();
  EXPECT_EQ(config.model_type, "mistral");
  EXPECT_EQ(config.sliding_window, 16);
  EXPECT_EQ(config.max_positions, 99);
  EXPECT_EQ(config.hidden_size, 8);
  EXPECT_EQ(config.rope.theta, 500000.0);
}

TEST(GgufConfig, TheUsersConfigMustNotContradict) {
  const struct {
    const char* user;
    const char* message;
  } kCases[] = {
      {"[1]", "user.json: not a JSON object"},
      {R"({"model_type": "qwen3"})",
       "user.json: 'model_type' is 'qwen3', but m.gguf has the architecture 'llama'"},
      {R"({"hidden_size": 16})",
       "user.json: 'hidden_size' is 16, but m.gguf has 8 (llama.embedding_length)"},
      {R"({"num_hidden_layers": 2})",
       "user.json: 'num_hidden_layers' is 2, but m.gguf has 1 (block_count)"},
      {R"({"vocab_size": 11})",
       "user.json: 'vocab_size' is 11, but m.gguf has 10 (rows of token_embd.weight)"},
      {R"({"rope_theta": 10000})",
       "user.json: 'rope_theta' is 10000, but m.gguf has 500000 (llama.rope.freq_base)"},
      {R"({"rms_norm_eps": 1e-6})",
       "user.json: 'rms_norm_eps' is 1e-06, but m.gguf has 1e-05 "
       "(llama.attention.layer_norm_rms_epsilon)"},
  };
  for (const auto& c : kCases) {
    const auto adopted = adopt(llama_keys(), memory(), c.user);
    ASSERT_FALSE(adopted) << c.user;
    EXPECT_EQ(adopted.error().message, c.message);
    EXPECT_EQ(adopted.error().code, ErrorCode::kBadInput);
  }
  // The same numbers are no contradiction, also where f32 rounded them.
  EXPECT_TRUE(
      adopt(llama_keys(), memory(), R"({"hidden_size": 8, "rms_norm_eps": 1.00000001e-5})"));
}

// -- RoPE factors
// --------------------------------------------------------------------------------------

Floats factors_of(double theta, double factor, double low, double high, double original,
                  int64_t pairs) {
  Floats factors;
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(pairs));
    const double wave = 2 * M_PI / frequency;
    const double smooth = std::clamp((original / wave - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

TEST(RopeFactors, ScalingIsRecovered) {
  const struct {
    double theta, factor, low, high, original;
    int64_t pairs;
  } kCases[] = {
      {500000, 8, 1, 4, 8192, 64},                               // Llama 3.1
      {500000, 32, 1, 4, 8192, 32},                              // Llama 3.2
      {500000, 32, 1, 4, 32, 16},   {10000, 4, 2, 8, 4096, 64},  // the same as 1, 4 and 2048
      {10000, 4, 1, 2, 2048, 64},   {10000, 8, 1.5, 3, 1000, 48},
      {100, 8, 1, 4, 64, 1},  // nothing is scaled
  };
  for (const auto& c : kCases) {
    const Floats factors = factors_of(c.theta, c.factor, c.low, c.high, c.original, c.pairs);
    const auto found = recover_llama3_scaling(c.theta, factors);
    ASSERT_TRUE(found) << c.original;
    EXPECT_TRUE(gives_rope_factors(*found, factors)) << c.original;
    RopeConfig other = *found;
    other.factor *= 2;
    const bool any = *std::ranges::max_element(factors) > 1;
    EXPECT_EQ(gives_rope_factors(other, factors), !any) << c.original;
  }
  const auto llama = recover_llama3_scaling(500000, factors_of(500000, 32, 1, 4, 8192, 32)).value();
  EXPECT_EQ(llama.factor, 32);
  EXPECT_EQ(llama.low_freq_factor, 1);
  EXPECT_EQ(llama.high_freq_factor, 4);
  EXPECT_EQ(llama.original_max_positions, 8192);
}

TEST(RopeFactors, OthersAreNotTakenForLlama3) {
  for (const Floats& factors : {Floats{1, 2, 1, 8}, Floats{0.5f, 1, 2, 8}, Floats{NAN, 1, 1, 1},
                                Floats{1, 5, 7, 2, 8, 3}}) {
    EXPECT_FALSE(recover_llama3_scaling(10000, factors));
  }
}

TEST(RopeFactors, AreHeldAgainstTheConfig) {
  Json keys = llama_keys();
  keys["llama.attention.key_length"] = 32;
  keys["llama.attention.value_length"] = 32;
  const auto with_factors = [&](const Floats& factors, const std::string& user) {
    auto source = memory();
    source->add("rope_freqs.weight", {std::ssize(factors)}, factors);
    return adopt(keys, std::move(source), user);
  };
  const Floats factors = factors_of(500000, 32, 1, 4, 32, 16);
  const auto scaling = [](int original) {
    return fmt::format(
        R"({{"rope_theta": 500000, "rope_scaling": {{"rope_type": "llama3", "factor": 32,
             "low_freq_factor": 1, "high_freq_factor": 4,
             "original_max_position_embeddings": {}}}}})",
        original);
  };
  const auto adopted = with_factors(factors, "").value();
  const ModelConfig config = parse_model_config(adopted.config, "", "c").value();
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kLlama3);
  EXPECT_EQ(config.rope.original_max_positions, 32);
  ASSERT_EQ(adopted.format_rules.size(), 1u);
  EXPECT_EQ(adopted.format_rules[0].source, "gguf:rope_freqs.weight");

  EXPECT_TRUE(with_factors(factors, scaling(32)));
  const Floats unknown = {1, 1, 1, 1, 1, 1, 3, 2, 8, 8, 8, 8, 8, 8, 8, 8};
  const struct {
    Floats factors;
    std::string user, message;
  } kCases[] = {
      {factors, scaling(64),
       "user.json: the RoPE scaling is not the one of m.gguf (tensor 'rope_freqs.weight')"},
      {factors, R"({"rope_theta": 500000})",
       "user.json: the RoPE scaling is not the one of m.gguf (tensor 'rope_freqs.weight')"},
      {unknown, "",
       "m.gguf: the metadata lack the RoPE scaling that rope_freqs.weight was computed from; give "
       "--config FILE"},
      {{1, 1},
       "",
       "m.gguf: expected f32, one for each pair of a head's 32 dimensions (tensor "
       "'rope_freqs.weight' [2])"},
  };
  for (const auto& c : kCases) {
    const auto refused = with_factors(c.factors, c.user);
    ASSERT_FALSE(refused) << c.message;
    EXPECT_EQ(refused.error().message, c.message);
  }
}

}  // namespace
}  // namespace ferry
