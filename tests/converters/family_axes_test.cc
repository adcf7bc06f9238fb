// The graphs of all families name the axes that later passes rely on.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "converters/family.h"
#include "core/file.h"
#include "graph/dims.h"
#include "graph/passes/passes.h"

namespace ferry::converters::family_axes_test {
namespace {

using graph::Axis;
using graph::Graph;
using graph::Node;
using graph::Op;
using enum graph::Axis;
using Names = std::vector<Axis>;

Graph graph_of(const std::string& family) {
  const std::string path = FERRY_TESTDATA "/families/" + family + "/config.json";
  const Result<ModelConfig> config =
      parse_model_config(read_text_file(path, 1 << 20).value(), "", path);
  EXPECT_TRUE(config) << config.error().message;
  BuildOptions build{.context_length = 64, .prefill_length = 16, .all_logits = true};
  if (config->is_encoder) build.style = ProgramStyle::kEncoder;
  build.sound_samples = 16000;  // for audio encoders that take samples
  build.sound_frames = 200;     // and those that take frames of any number
  build.source_length = 24;     // for source encoders
  Result<Methods> methods = config->family->text_decoder().build(*config, build);
  EXPECT_TRUE(methods) << methods.error().message;
  EXPECT_EQ(methods->size(), 1u);
  EXPECT_EQ(methods->front().name, "forward");
  return std::move(methods->front().graph);
}

Names axes_of(const Graph& g, ValueId id) {
  Names axes;
  for (const Dim& dim : g[id].shape) axes.push_back(dim.axis);
  return axes;
}
Names argument(const Graph& g, const Node& node, size_t arg) {
  return axes_of(g, std::get<ValueId>(node.args[arg]));
}

const Names kHeads = {kBatch, kSequence, kHead, kHeadDim};
const Names kHeadsFirst = {kBatch, kHead, kSequence, kHeadDim};

// Checks the operands and results of operators that work on heads, and returns their number.
// `other_products`: the graph has matrix products that are not attention.
int check_heads(const Graph& g, bool other_products) {
  int found = 0;
  for (const Node& node : g.nodes) {
    if (node.op == Op::kSdpa) {
      for (const size_t arg : {0, 1, 2}) EXPECT_EQ(argument(g, node, arg), kHeads);
      EXPECT_EQ(axes_of(g, node.outs[0]), kHeads);
      ++found;
    } else if (node.op == Op::kUpdateCache) {
      for (const size_t arg : {0, 1}) EXPECT_EQ(argument(g, node, arg), kHeads);
      ++found;
    } else if (node.op == Op::kGatedDeltaRule) {
      if (argument(g, node, 3).size() == 4) {  // Mamba, whose channels are no heads
        ++found;
        continue;
      }
      for (const size_t arg : {0, 1, 2}) EXPECT_EQ(argument(g, node, arg), kHeadsFirst);
      for (const size_t arg : {3, 4}) {
        EXPECT_EQ(argument(g, node, arg), (Names{kBatch, kHead, kSequence}));
      }
      EXPECT_EQ(axes_of(g, node.outs[0]), kHeadsFirst);
      EXPECT_EQ(axes_of(g, node.outs[1]), (Names{kBatch, kHead, kHeadDim, kHeadDim}));
      ++found;
    } else if (node.op == Op::kBmm && !other_products) {  // attention with a softcap
      EXPECT_EQ(argument(g, node, 0)[0], kHead);
      EXPECT_EQ(argument(g, node, 1)[0], kHead);
      EXPECT_EQ(axes_of(g, node.outs[0])[0], kHead);
      ++found;
    }
  }
  return found;
}

// Checks that all dimensions of weights, of results of linear layers, and of inputs and outputs
// have a name, except those of size 1 and those of kernels.
void check_named(const Graph& g, ValueId id) {
  const std::string& name = g[id].name;
  const bool kernel =
      name.ends_with("conv1d.weight") || name.find("convolution") != std::string::npos;
  for (const Dim& dim : g[id].shape) {
    EXPECT_TRUE(dim.axis != kNone || dim == Dim(1) || kernel)
        << g[id].name << " " << to_text(g, g[id].dtype, g[id].shape);
  }
}

class FamilyAxes : public testing::TestWithParam<std::string> {};

TEST_P(FamilyAxes, HeadsAreNamedWhereverAttentionIs) {
  const Graph g = graph_of(GetParam());
  // Mamba-2 layers have products of groups and of pairs of tokens, Gemma 3n has products of the
  // streams of each token, and JetMoE of its experts.
  const std::set<std::string> mamba2 = {
      "granitemoehybrid_mamba", "mamba2", "bamba", "falcon_h1", "zamba2", "nemotron_h"};
  const bool other_products =
      mamba2.contains(GetParam()) || GetParam().starts_with("gemma3n") || GetParam() == "jetmoe";
  const bool attends = GetParam() != "mamba2";
  EXPECT_EQ(check_heads(g, other_products) > 0, attends);
  for (const graph::Value& value : g.values) {
    if (value.origin != graph::Value::Origin::kBuffer) continue;
    const bool conv = value.name.ends_with(".conv_state");
    const bool channels = value.name.ends_with(".recurrent_state") && value.shape.back() == Dim(1);
    EXPECT_EQ(std::ranges::count(value.shape, kHead, &Dim::axis), conv || channels ? 0 : 1)
        << value.name;
  }
}

TEST_P(FamilyAxes, WeightsAndResultsAreNamed) {
  const Graph g = graph_of(GetParam());
  for (size_t i = 0; i < g.values.size(); ++i) {
    if (g.values[i].origin == graph::Value::Origin::kWeight) {
      check_named(g, {static_cast<int32_t>(i)});
    }
  }
  for (const Node& node : g.nodes) {
    if (node.op == Op::kLinear) check_named(g, node.outs[0]);
  }
  for (const ValueId id : g.inputs) check_named(g, id);
  for (const ValueId id : g.outputs) {
    EXPECT_EQ(axes_of(g, id), (Names{kBatch, kSequence, kFeature}));
  }
}

TEST_P(FamilyAxes, ABatchOfOneAndTheTokensAreTheFirstDimensionsOfHiddenStates) {
  const Graph g = graph_of(GetParam());
  for (const graph::Probe& probe : g.probes) {
    if (!probe.name.starts_with("hidden_states.")) continue;
    EXPECT_EQ(axes_of(g, probe.value), (Names{kBatch, kSequence, kFeature})) << probe.name;
  }
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(FERRY_TESTDATA "/families")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyAxes, testing::ValuesIn(families()),
                         [](const auto& test) { return test.param; });

TEST(AxesOfFamilies, EveryFamilyIsAmongThem) {
  std::set<std::string_view> seen;
  for (const std::string& name : families()) {
    const std::string path = FERRY_TESTDATA "/families/" + name + "/config.json";
    seen.insert(
        parse_model_config(read_text_file(path, 1 << 20).value(), "", path).value().family->name());
  }
  EXPECT_EQ(seen.size(), all_families().size());
}

// With one token and one head a view may keep all sizes and still change the axes.
TEST(AxesOfFamilies, OneHeadAndOneTokenAreNoMisuse) {
  for (const std::string family :
       {"deepseek_v2", "deepseek_v3", "granitemoehybrid_mamba", "llama"}) {
    const std::string path = FERRY_TESTDATA "/families/" + family + "/config.json";
    nlohmann::json config = nlohmann::json::parse(read_text_file(path, 1 << 20).value());
    for (const char* key : {"num_attention_heads", "num_key_value_heads", "mamba_n_heads"}) {
      config[key] = 1;
    }
    config["mamba_n_groups"] = 1;
    config["mamba_d_head"] = "auto";
    const Result<ModelConfig> read = parse_model_config(config.dump(), "", path);
    ASSERT_TRUE(read) << read.error().message;
    const Result<Methods> methods = read->family->text_decoder().build(
        *read, {.context_length = 64, .prefill_length = 1, .style = ProgramStyle::kStatic});
    EXPECT_TRUE(methods) << family << ": " << methods.error().message;
  }
}

}  // namespace
}  // namespace ferry::converters::family_axes_test
