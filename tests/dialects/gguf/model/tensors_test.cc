// Layouts of GGUF tensors, compared with the index rules of the programs that write them.

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cmath>
#include <functional>
#include <map>

#include "tests/dialects/gguf_memory.h"

namespace ferry::converters::tensors_test {
namespace {

// -- layouts: row g of a GGUF tensor is row index[g] of the Hugging Face tensor

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

// Head t * nk + k is head k * r + t. Heads have `d` rows and begin at row `from`.
Index grouped_to_tiled(int64_t from, int64_t nk, int64_t nv, int64_t d) {
  Index index = identity(from);
  for (int64_t g = 0; g < nv; ++g) {
    const int64_t head = g % nk * (nv / nk) + g / nk;
    for (int64_t i = 0; i < d; ++i) index.push_back(from + head * d + i);
  }
  return index;
}

// Returns the rows of the given parts of in_proj_qkvz, which has q, k, v.., z.. per key head.
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

// Takes rows of a [rows, columns] matrix, or columns.
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
  Index index;  // index of rows
  bool of_columns = false;
};

Floats numbered(const Shape& shape) {
  Floats values(static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

void expect_inverse(const Json& keys, const std::vector<LayoutCase>& cases) {
  auto source = gguf_memory();
  for (const LayoutCase& c : cases) {
    source->add(c.gguf, c.stored, take(numbered(c.shape), c.stored.back(), c.index, c.of_columns));
  }
  const auto adopted = adopt(keys, std::move(source));
  ASSERT_TRUE(adopted) << adopted.error().message;
  for (const LayoutCase& c : cases) {
    EXPECT_EQ(adopted->values_of(c.hf), numbered(c.shape)) << c.gguf;
    const graph::Recipe& recipe = adopted->find(c.hf)->recipe;
    EXPECT_EQ(recipe.output().shape, c.shape) << c.gguf;
    EXPECT_EQ(source_names(recipe, *adopted->source), c.gguf);
    // A recipe is one strided piece, which may follow a piece with the rows of q and k.
    EXPECT_LE(recipe.pieces.size(), 2u) << c.gguf;
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
  // Tensors with one element per head are matrices of one column.
  auto source = gguf_memory();
  source->add("blk.0.ssm_dt.bias", {4}, {1, 3, 2, 4});
  source->add("blk.0.ssm_a", {4}, {-std::exp(1.0f), -std::exp(3.0f), -1.0f, -std::exp(0.5f)});
  const auto adopted = adopt(hybrid_keys("qwen35"), std::move(source)).value();
  EXPECT_EQ(adopted.values_of(names[4]), (Floats{1, 2, 3, 4}));
  const Floats logs = adopted.values_of(attn + "A_log");
  const Floats expected = {1.0f, 0.0f, 3.0f, 0.5f};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(logs[i], expected[i], 1e-6);
}

TEST(Gguf, InputProjectionOfQwen3NextIsPackedAgain) {
  // A key head has 2 rows and two value heads of 3 rows each: groups of 2, 2, 6 and 6 rows.
  const Floats packed = numbered({32, 5});
  auto source = gguf_memory();
  source->add("blk.1.attn_qkv.weight", {20, 5}, take(packed, 5, packed_rows(2, 2, 6, {0, 1, 2})));
  source->add("blk.1.attn_gate.weight", {12, 5}, take(packed, 5, packed_rows(2, 2, 6, {3})));
  source->add("blk.1.ssm_ba.weight", {8, 5});
  source->add("blk.1.ssm_conv1d.weight", {20, 4});
  source->add("blk.1.ffn_gate_inp_shexp.weight", {5});
  source->add("blk.1.ffn_up_exps.weight", {3, 2, 5});
  const auto adopted = adopt(hybrid_keys("qwen3next"), std::move(source)).value();
  const std::string layer = "model.layers.1.";
  EXPECT_EQ(adopted.values_of(layer + "linear_attn.in_proj_qkvz.weight"), packed);
  std::map<std::string, Shape> shapes;
  for (const KeyedTensor& t : adopted.tensors.tensors) shapes[t.key] = t.recipe.output().shape;
  EXPECT_EQ(shapes[layer + "linear_attn.in_proj_qkvz.weight"], (Shape{32, 5}));
  EXPECT_EQ(shapes[layer + "linear_attn.conv1d.weight"], (Shape{20, 1, 4}));
  EXPECT_EQ(shapes[layer + "mlp.shared_expert_gate.weight"], (Shape{1, 5}));
  for (int expert = 0; expert < 3; ++expert) {
    const Floats all =
        adopted.values_of(fmt::format("{}mlp.experts.{}.up_proj.weight", layer, expert));
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
    auto source = gguf_memory();
    source->add(c.gguf, {2}, {1.25f, 1.25f});
    const auto adopted = adopt(c.keys, std::move(source)).value();
    EXPECT_EQ(adopted.values_of(c.hf), (Floats{c.expected, c.expected})) << c.gguf;
  }
}

TEST(Gguf, WhatIsNotOfTheModelKeepsItsName) {
  Json keys = hybrid_keys("qwen35");
  keys["qwen35.block_count"] = 5;
  keys["qwen35.nextn_predict_layers"] = 1;
  auto source = gguf_memory();
  for (const char* name : {"blk.0.attn_sinks.weight", "blk.00.attn_norm.weight",
                           "blk.4.attn_norm.weight", "rope_freqs", "blk.0.ssm_ba.weight"}) {
    source->add(name, {4});
  }
  const auto adopted = adopt(keys, std::move(source)).value();
  std::map<std::string, std::string> names;
  for (const KeyedTensor& tensor : adopted.tensors.tensors) {
    names[source_names(tensor.recipe, *adopted.source)] = tensor.key;
  }
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
    auto source = gguf_memory();
    source->add(c.name, c.shape, c.values);
    const auto adopted = adopt(c.keys, std::move(source));
    ASSERT_FALSE(adopted) << c.message;
    EXPECT_EQ(adopted.error().message, c.message);
    EXPECT_EQ(adopted.error().code, ErrorCode::kBadInput);
  }
}

}  // namespace
}  // namespace ferry::converters::tensors_test
