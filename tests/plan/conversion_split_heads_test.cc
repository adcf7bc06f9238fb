// One attention block with one operator per head, compared with all heads together, and with the
// outputs of ExecuTorch's own pass. Some sizes equal a number of heads, and could be confused with
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "checkpoint/checkpoint.h"
#include "converters/blocks/attention.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/static_ports.h"
#include "core/checked.h"
#include "core/program_interface.h"
#include "core/tensor_source.h"
#include "graph/passes/passes.h"
#include "tests/plan/executed_method.h"

namespace ferry::plan::conversion_split_heads_test {
namespace {

using converters::AttentionStyle;
using converters::BuildOptions;
using converters::ModelConfig;
using graph::Model;

// -- one attention block

struct Block {
  int64_t heads = 4, kv_heads = 2, head_dim = 16, hidden = 48, tokens = 8, context = 48;
  int64_t rotary = 0;  // 0: the same as head_dim
  AttentionStyle style = {};
  converters::SoftmaxStyle softmax = converters::SoftmaxStyle::kPlain;
  converters::Rotation rotation = converters::Rotation::kNone;
  std::optional<double> softcap = {};
};

// Inputs are hidden, cos, sin and the caches and mask of a static program. Outputs are "logits",
// which is the block's result, and the new keys and values.
graph::Graph block_graph(const Block& o) {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = o.hidden;
  config.num_heads = o.heads;
  config.num_kv_heads = o.kv_heads;
  config.head_dim = o.head_dim;
  config.rms_norm_eps = 1e-5;
  config.layer_types = {converters::LayerType::kFullAttention};
  config.rope_layers = {true};
  config.scalars.attention_softcap = o.softcap;
  BuildOptions options{.context_length = o.context,
                       .prefill_length = o.tokens,
                       .all_logits = true,
                       .style = converters::ProgramStyle::kStatic};
  options.softmax = o.softmax;
  options.rotation = o.rotation;
  graph::GraphBuilder b(1);
  converters::StaticPorts ports(b, config, options, o.tokens);
  converters::DecoderContext c{.config = config, .options = options};
  c.tokens = converters::positions(o.tokens);
  c.ports = &ports;
  const int64_t rotary = o.rotary == 0 ? o.head_dim : o.rotary;
  c.full.rope.cos = b.input("cos", DType::kF32, {1, c.tokens, 1, rotary});
  c.full.rope.sin = b.input("sin", DType::kF32, {1, c.tokens, 1, rotary});
  c.full.query_rope = c.full.rope;
  c.full.mask = ports.attention_mask();
  const graph::ValueId x = b.input("hidden", DType::kF32,
                                   {converters::batch(), c.tokens, converters::features(o.hidden)});
  b.set_layer(0);
  ports.finish(b, converters::attention(b, c, x, 0, o.style));
  auto graph = b.finish();
  EXPECT_TRUE(graph) << graph.error().message;
  return graph ? *std::move(graph) : graph::Graph{};
}

// Binds `graph` to weights of `source`, where they have the names that `stored` returns.
Model bound(graph::Graph graph, const TensorSource& source,
            const std::function<std::string(const std::string&)>& stored) {
  graph::StateDict dict;
  for (const graph::Value& value : graph.values) {
    if (value.origin != graph::Value::Origin::kWeight) continue;
    const auto& entries = source.entries();
    const auto found = std::ranges::find(entries, stored(value.name), &TensorEntry::name);
    EXPECT_NE(found, entries.end()) << value.name;
    if (found == entries.end()) return {};
    Shape shape;
    for (const graph::Dim& dim : value.shape) shape.push_back(dim.base);
    graph::Recipe recipe =
        graph::whole_tensor(source, static_cast<size_t>(found - entries.begin()));
    recipe.output().shape = shape;
    EXPECT_TRUE(dict.add({value.name, recipe, "test"}));
  }
  auto model = graph::bind({{"forward", std::move(graph)}}, std::move(dict), "test");
  EXPECT_TRUE(model) << model.error().message;
  return model ? *std::move(model) : Model{};
}

struct Executed {
  Outputs several, single;
};

// Executes both forms of a block with random weights and inputs, and checks the number of
// projections and the interface.
Executed execute_block(const Block& o, const std::string& what) {
  graph::Graph graph = block_graph(o);
  std::mt19937 random(7);
  MemorySource source("random");
  for (const graph::Value& value : graph.values) {
    if (value.origin != graph::Value::Origin::kWeight) continue;
    Shape shape;
    for (const graph::Dim& dim : value.shape) shape.push_back(dim.base);
    source.add(value.name, DType::kF32, shape,
               randoms(random, static_cast<size_t>(*checked_numel(shape))));
  }
  const Model whole = bound(std::move(graph), source, [](const std::string& name) { return name; });
  const Result<Model> split = single_heads(whole);
  EXPECT_TRUE(split) << what << ": " << split.error().message;
  if (!split) return {};
  Tensors inputs;
  for (const graph::LoweredPort& port : inputs_of(whole, "forward")) {
    const auto count = static_cast<size_t>(*checked_numel(port.shape));
    std::vector<float> values = randoms(random, count);
    if (port.name == kAttentionMaskPort) {
      for (float& value : values) value = value < 0.5F ? 0.0F : -65535.0F;
    }
    inputs[port.name] = bytes_of(values);
  }
  expect_same_interface(whole, *split);
  EXPECT_EQ(projections(whole, "forward", 0), 4) << what;
  EXPECT_EQ(projections(*split, "forward", 0), o.heads + 2 * o.kv_heads + 1) << what;
  return {execute(whole, "forward", source, inputs), execute(*split, "forward", source, inputs)};
}

TEST(SplitHeads, SizesThatAreEqualToNumbersOfHeads) {
  const std::vector<std::pair<const char*, Block>> cases = {
      {"head_dim / 2 is H", {.heads = 4, .kv_heads = 2, .head_dim = 8}},
      {"head_dim / 2 is G", {.heads = 8, .kv_heads = 4, .head_dim = 8}},
      {"head_dim is H", {.heads = 8, .kv_heads = 2, .head_dim = 8}},
      {"tokens are H", {.heads = 8, .kv_heads = 4, .tokens = 8}},
      {"tokens are G", {.heads = 8, .kv_heads = 4, .tokens = 4}},
      {"tokens are H / G", {.heads = 8, .kv_heads = 2, .tokens = 4}},
      {"past is H", {.heads = 4, .kv_heads = 2, .tokens = 8, .context = 12}},
      {"past is G", {.heads = 4, .kv_heads = 2, .tokens = 8, .context = 10}},
      {"context is H", {.heads = 8, .kv_heads = 2, .tokens = 2, .context = 8}},
      {"hidden is H", {.heads = 8, .kv_heads = 8, .hidden = 8}},
      {"one token", {.tokens = 1}},
      {"one query head", {.heads = 1, .kv_heads = 1}},
      {"one key head", {.heads = 4, .kv_heads = 1}},
      {"one key head, one token", {.heads = 4, .kv_heads = 1, .tokens = 1}},
      {"as many key heads", {.heads = 4, .kv_heads = 4}},
      {"everything is 4",
       {.heads = 4, .kv_heads = 4, .head_dim = 4, .hidden = 4, .tokens = 4, .context = 8}},
      {"everything is 2",
       {.heads = 2, .kv_heads = 2, .head_dim = 2, .hidden = 2, .tokens = 2, .context = 4}},
      {"three of six", {.heads = 6, .kv_heads = 3}},
  };
  for (const auto& [what, block] : cases) {
    const Executed outputs = execute_block(block, what);
    expect_near(outputs.several, outputs.single, 1e-6F, what);
  }
}

TEST(SplitHeads, EveryKindOfAttention) {
  using enum AttentionStyle::QkNorm;
  constexpr auto kMasked = converters::SoftmaxStyle::kMasked;
  constexpr auto kR3 = converters::Rotation::kR3;
  const std::vector<std::pair<const char*, Block>> cases = {
      {"biases", {.style = {.qkv_bias = true, .output_bias = true}}},
      {"norms of heads", {.style = {.qk_norm = kHead}}},
      {"norms over all heads", {.style = {.qk_norm = kWhole}}},
      {"norms over all heads with biases", {.style = {.qkv_bias = true, .qk_norm = kWhole}}},
      {"output gate", {.style = {.output_gate = true}}},
      {"output gate, norms, biases",
       {.style = {.qkv_bias = true, .qk_norm = kHead, .output_gate = true}}},
      {"partial rotary", {.rotary = 8}},
      {"partial rotary of H", {.rotary = 4}},
      {"softcap", {.softcap = 5.0}},
      {"masked softmax", {.softmax = kMasked}},
      {"R3", {.rotation = kR3}},
      {"R3, masked softmax", {.softmax = kMasked, .rotation = kR3}},
      {"R3, masked softmax, softcap, gate, norms, biases",
       {.rotary = 8,
        .style = {.qkv_bias = true, .output_bias = true, .qk_norm = kHead, .output_gate = true},
        .softmax = kMasked,
        .rotation = kR3,
        .softcap = 5.0}},
      {"R3 with one key head", {.kv_heads = 1, .rotation = kR3}},
  };
  for (const auto& [what, block] : cases) {
    const Executed outputs = execute_block(block, what);
    expect_near(outputs.several, outputs.single, 1e-6F, what);
  }
}

// -- against ExecuTorch's pass

std::vector<float> floats(const TensorSource& source, const std::string& name, Shape* shape) {
  const auto& entries = source.entries();
  const auto found = std::ranges::find(entries, name, &TensorEntry::name);
  EXPECT_NE(found, entries.end()) << name;
  std::vector<float> values(found->bytes / sizeof(float));
  EXPECT_TRUE(source.read(static_cast<size_t>(found - entries.begin()), 0,
                          std::as_writable_bytes(std::span(values))));
  if (shape != nullptr) *shape = found->shape;
  return values;
}

bool has(const TensorSource& source, const std::string& name) {
  return std::ranges::count(source.entries(), name, &TensorEntry::name) > 0;
}

// Returns the table [A, pairs], or [A, 1] for all pairs, as both halves of a head. The first half
// is multiplied by `sign`.
std::vector<std::byte> both_halves(const TensorSource& source, const std::string& name,
                                   int64_t pairs, float sign) {
  Shape shape;
  const std::vector<float> table = floats(source, name, &shape);
  std::vector<float> out;
  for (int64_t row = 0; row < shape[0]; ++row) {
    for (int64_t i = 0; i < 2 * pairs; ++i) {
      const int64_t column = shape[1] == 1 ? 0 : i % pairs;
      out.push_back((i < pairs ? sign : 1) * table[static_cast<size_t>(row * shape[1] + column)]);
    }
  }
  return bytes_of(out);
}

std::string official_name(const std::string& weight) {
  std::string name = weight.substr(std::string("layers.0.attention.").size());
  std::ranges::replace(name, '.', '_');
  const size_t norm = name.find("_norm");
  if (norm != std::string::npos) return "in.p_" + name.substr(0, norm) + "_norm_fn_weight";
  return "in.p_" + name.substr(0, 2) + "_conv" + name.substr(2);
}

class OfficialPass : public testing::TestWithParam<const char*> {};

TEST_P(OfficialPass, MakesTheSameOutputs) {
  const std::string path = std::string(FERRY_TESTDATA) + "/mha2sha/" + GetParam() + ".safetensors";
  auto opened = checkpoint::open_tensors(path);
  ASSERT_TRUE(opened) << opened.error().message;
  const TensorSource& source = **opened;
  Shape hidden, keys, queries, mask;
  const Tensors given = {{"hidden", bytes_of(floats(source, "in.hidden_states", &hidden))},
                         {"k_cache_0", bytes_of(floats(source, "in.k_caches", &keys))},
                         {"v_cache_0", bytes_of(floats(source, "in.v_caches", nullptr))},
                         {"attention_mask", bytes_of(floats(source, "in.atten_mask", &mask))}};
  floats(source, "in.p_wq_conv_weight", &queries);
  Block o{.heads = queries[0] / keys[2],
          .kv_heads = keys[1],
          .head_dim = keys[2],
          .hidden = hidden[2],
          .tokens = hidden[1],
          .context = mask.back()};
  o.style.qkv_bias = has(source, "in.p_wq_conv_bias");
  if (has(source, "in.p_q_norm_fn_weight")) o.style.qk_norm = AttentionStyle::QkNorm::kHead;
  if (has(source, "in.b_r3_weight")) o.rotation = converters::Rotation::kR3;
  if (std::string(GetParam()).starts_with("masked")) o.softmax = converters::SoftmaxStyle::kMasked;
  Tensors inputs = given;
  inputs["cos"] = both_halves(source, "in.freqs_cos", o.head_dim / 2, 1);
  inputs["sin"] = both_halves(source, "in.freqs_sin", o.head_dim / 2, -1);
  inputs["tokens"].resize(static_cast<size_t>(o.tokens) * 4);
  inputs["input_pos"].resize(static_cast<size_t>(o.tokens) * 4);
  const Model whole = bound(block_graph(o), source, official_name);
  const Result<Model> split = single_heads(whole);
  ASSERT_TRUE(split) << split.error().message;
  expect_same_interface(whole, *split);
  EXPECT_EQ(projections(*split, "forward", 0), o.heads + 2 * o.kv_heads + 1);
  const Outputs expected = {{"logits", floats(source, "out.0", nullptr)},
                            {"new_k_0", floats(source, "out.1", nullptr)},
                            {"new_v_0", floats(source, "out.2", nullptr)}};
  const Outputs several = execute(whole, "forward", source, inputs);
  const Outputs single = execute(*split, "forward", source, inputs);
  expect_near(expected, several, 1e-6F, "several heads");
  expect_near(expected, single, 1e-6F, "one head each");
}

INSTANTIATE_TEST_SUITE_P(Cases, OfficialPass,
                         testing::Values("test_h8_g8_freq1", "gqa_h8_g2", "mqa_h4_g1", "bias_h4_g2",
                                         "qknorm_h4_g2", "masked_softmax_h4_g2", "ar1_h4_g2",
                                         "r3_h4_g2_matmul_kept", "mask3d_ar_eq_heads_h8_g4"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ferry::plan::conversion_split_heads_test
