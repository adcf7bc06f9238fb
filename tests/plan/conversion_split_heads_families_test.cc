// Attention with one operator per head, compared with attention over all heads, in every family. R3
// and masked softmax, compared with programs without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "converters/assemble.h"
#include "core/checked.h"
#include "core/encoding.h"
#include "core/program_interface.h"
#include "graph/passes/passes.h"
#include "tests/converters/family_fixture.h"
#include "tests/plan/executed_method.h"

namespace ferry::plan::conversion_split_heads_families_test {
namespace {

using converters::BuildOptions;
using converters::ModelConfig;
using graph::Model;

// -- all families

// A checkpoint of random values with the names, dtypes and shapes of a family.
class RandomCheckpoint : public TensorSource {
 public:
  explicit RandomCheckpoint(const std::string& family)
      : entries_(converters::family_tensors(family)) {}
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const TensorEntry& entry = entries_[index];
    const auto size = static_cast<size_t>(dtype_bytes(entry.dtype));
    // Values are small where many products are summed, so that activations stay around 1.
    const auto inputs = entry.shape.size() < 2 ? 1.0F : static_cast<float>(entry.shape.back());
    std::vector<float> values(out.size() / size);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = random_at(index, offset / size + i) * 1.5F / std::sqrt(inputs);
    }
    from_f32(entry.dtype, values.data(), out.data(), values.size());
    return {};
  }

 private:
  // Returns a value from -1 to 1 that depends on its place alone, because weights are read in
  // pieces (SplitMix64).
  static float random_at(uint64_t tensor, uint64_t element) {
    uint64_t mixed = (tensor << 40 | element) * 0x9E3779B97F4A7C15;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return static_cast<float>((mixed ^ (mixed >> 31)) >> 40) / (1 << 23) - 1;
  }

  std::string path_ = "random";
  std::vector<SourceFile> files_ = {{.name = "model.safetensors"}};
  std::vector<TensorEntry> entries_;
};

struct Variant {
  converters::SoftmaxStyle softmax = converters::SoftmaxStyle::kPlain;
  converters::Rotation rotation = converters::Rotation::kNone;
  converters::PortTypes ports = {};
};

constexpr int64_t kContext = 24;
constexpr Encoding kCacheEncoding = {2.0 / 255, 128};

struct Family {
  ModelConfig config;
  RandomCheckpoint source;

  explicit Family(const std::string& name) : config(converters::family_config(name)), source(name) {
    // Static programs have one chunk.
    if (config.number(converters::kChunkedWindows) != 0) config.sliding_window = kContext;
  }

  Model model(const Variant& variant) const {
    BuildOptions options{.context_length = kContext,
                         .prefill_length = 8,
                         .all_logits = true,
                         .style = converters::ProgramStyle::kStatic};
    options.softmax = variant.softmax;
    options.rotation = variant.rotation;
    options.image_patches = 64;     // for towers that take images of any shape
    options.sound_samples = 16000;  // for audio encoders that take samples
    options.sound_frames = 200;     // and those that take frames of any number
    options.source_length = 24;     // for source encoders
    options.ports = variant.ports;
    options.ports.keys.assign(static_cast<size_t>(config.num_layers), kCacheEncoding);
    options.ports.values = options.ports.keys;
    options.ports.logits_encoding = {0.05, 128};
    auto made = converters::assemble(source, converters::key_by_name(source), config, options, {});
    EXPECT_TRUE(made) << made.error().message;
    EXPECT_TRUE(made->problems.empty());
    return std::move(made->components.back().model);
  }

  // Makes inputs: the mask shows the first `kept` columns of the caches, and the tokens of the call
  // causally.
  Tensors inputs(const std::vector<graph::LoweredPort>& ports) const {
    std::mt19937 random(3);
    Tensors inputs;
    for (const graph::LoweredPort& port : ports) {
      const auto count = static_cast<size_t>(*checked_numel(port.shape));
      inputs[port.name] = port.dtype == DType::kI32 ? integers(port, count)
                          : port.name.ends_with("mask")
                              ? mask(port)
                              : stored(randoms(random, count), port.dtype);
    }
    return inputs;
  }

 private:
  static constexpr int64_t kKept = 9;

  std::vector<std::byte> integers(const graph::LoweredPort& port, size_t count) const {
    std::vector<int32_t> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = port.name == kTokensPort
                      ? static_cast<int32_t>(i * 7 % static_cast<size_t>(config.vocab_size))
                      : static_cast<int32_t>(kKept) + static_cast<int32_t>(i);
    }
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
  }

  static std::vector<std::byte> mask(const graph::LoweredPort& port) {
    std::vector<float> values;
    const int64_t tokens = port.shape[2], columns = port.shape[3];
    for (int64_t row = 0; row < tokens; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t own = column - (columns - tokens);
        const bool seen = own >= 0 ? own <= row : column < kKept;
        values.push_back(seen ? 0.0F : -60000.0F);
      }
    }
    const int64_t most = is_encoded(port.dtype) ? largest_code(port.dtype) : 1;
    return stored(values, port.dtype, {65535.0 / static_cast<double>(most), most});
  }

  static std::vector<std::byte> stored(const std::vector<float>& values, DType dtype,
                                       const Encoding& encoding = kCacheEncoding) {
    std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
    if (!is_encoded(dtype)) {
      from_f32(dtype, values.data(), bytes.data(), values.size());
      return bytes;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const auto code = static_cast<uint16_t>(encoding.code(values[i], dtype));
      std::memcpy(bytes.data() + i * bytes.size() / values.size(), &code,
                  bytes.size() / values.size());
    }
    return bytes;
  }
};

// Number of linear nodes of an attention block before and after the split.
struct Projections {
  int64_t whole, split;
};
Projections projections_of(const ModelConfig& config, int64_t layer) {
  // The last layers of Gemma 3n compute queries alone. They use keys and values of earlier layers.
  if (layer >= config.num_layers - config.number("num_kv_shared_layers")) {
    return {2, config.num_heads + 1};
  }
  if (config.number("kv_lora_rank") == 0) {
    const int64_t kv_heads = config.heads_of(layer).kv_heads;
    const bool full =
        config.layer_types[static_cast<size_t>(layer)] == converters::LayerType::kFullAttention;
    // The values of full attention in Gemma 4 are its keys.
    if (full && config.number("attention_k_eq_v") > 0) return {3, config.num_heads + kv_heads + 1};
    return {4, config.num_heads + 2 * kv_heads + 1};
  }
  // In latent attention only the last matrix of the queries has heads.
  const int64_t whole = config.number("q_lora_rank") == 0 ? 3 : 4;
  return {whole, whole - 1 + config.num_heads};
}

void check_family(const Family& family, const std::string& what, const Variant& variant) {
  const Model made = family.model(variant);
  const Result<Model> split = single_heads(made);
  ASSERT_TRUE(split) << what << ": " << split.error().message;
  const Model whole = *graph::cast_weights(made, graph::WeightDType::kF32);
  expect_same_interface(whole, *split);
  const ModelConfig& config = family.config;
  const LoadedModel of_several(whole, family.source), of_single(*split, family.source);
  for (const graph::MethodGraph& method : whole.methods) {
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      if (!converters::is_attention(config.layer_types[static_cast<size_t>(layer)])) continue;
      const Projections expected = projections_of(config, layer);
      EXPECT_EQ(projections(whole, method.name, layer), expected.whole) << what;
      EXPECT_EQ(projections(*split, method.name, layer), expected.split) << what;
    }
    const Tensors inputs = family.inputs(of_several.inputs_of(method.name));
    expect_near(of_several.execute(method.name, inputs), of_single.execute(method.name, inputs),
                1e-6F, what + " " + method.name);
  }
}

// The states of Mamba-2 in a layer with attention cannot be divided, nor the gate of AFMoE, which
// has a matrix of its own, biases of keys (Doge), routed queries (JetMoE) and widened values
// (MiMo). Models of speech have no static programs, and those that hear have several components.
bool is_divided(const Family& family) {
  const std::set<std::string> whole = {"afmoe", "doge", "jetmoe", "mimo_v2_flash"};
  if (family.config.has_cross_attention() || family.config.takes_rows()) return false;
  if (whole.contains(family.config.model_type)) return false;
  const auto& types = family.config.layer_types;
  return std::ranges::count(types, converters::LayerType::kMambaAndAttention) == 0;
}

TEST(SplitHeads, LayersThatCannotBeDividedAreRefused) {
  for (const char* name : {"afmoe", "doge", "falcon_h1", "jetmoe", "mimo_v2_flash", "zamba2"}) {
    const Family family(name);
    ASSERT_FALSE(is_divided(family));
    const Result<Model> split = single_heads(family.model({}));
    ASSERT_FALSE(split);
    EXPECT_EQ(split.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(split.error().message.find("cannot be divided into heads"), std::string::npos);
  }
}

TEST(SplitHeads, EveryFamilyComputesTheSame) {
  const auto families = std::filesystem::path(FERRY_TESTDATA) / "families";
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(families)) {
    const Family family(entry.path().filename());
    if (family.config.only_encodes || !is_divided(family)) continue;
    check_family(family, entry.path().filename(), {});
    count += 1;
  }
  EXPECT_GE(count, 30U);
}

TEST(SplitHeads, EveryFamilyComputesTheSameWithMaskedSoftmaxAndR3) {
  const auto families = std::filesystem::path(FERRY_TESTDATA) / "families";
  for (const auto& entry : std::filesystem::directory_iterator(families)) {
    const Family family(entry.path().filename());
    if (family.config.only_encodes || !is_divided(family)) continue;
    const bool rotates = std::has_single_bit(static_cast<uint64_t>(family.config.head_dim));
    check_family(family, entry.path().filename(),
                 {.softmax = converters::SoftmaxStyle::kMasked,
                  .rotation = rotates ? converters::Rotation::kR3 : converters::Rotation::kNone});
  }
}

TEST(SplitHeads, CachesMasksAndLogitsOfOtherDTypesStayTheSame) {
  for (const char* name : {"llama", "llama3_tied", "qwen3_5_text", "gemma3", "olmo2"}) {
    const Family family(name);
    for (const DType dtype : {DType::kU8, DType::kU16, DType::kF16, DType::kBF16}) {
      Variant variant;
      variant.ports.cache = variant.ports.mask = variant.ports.logits = dtype;
      check_family(family, name + std::string(" ") + std::string(dtype_name(dtype)), variant);
    }
  }
}

// -- R3

// Multiplies keys f32 [1,G,D,C] by the Hadamard matrix, which is made here from its recursion.
std::vector<std::byte> rotated(std::vector<float> keys, const Shape& shape) {
  const auto dim = static_cast<size_t>(shape[2]), columns = static_cast<size_t>(shape[3]);
  for (size_t head = 0; head < static_cast<size_t>(shape[1]); ++head) {
    for (size_t column = 0; column < columns; ++column) {
      float* first = keys.data() + head * dim * columns + column;
      for (size_t half = 1; half < dim; half *= 2) {
        for (size_t i = 0; i < dim; ++i) {
          if ((i & half) != 0) continue;
          const float a = first[i * columns], b = first[(i + half) * columns];
          first[i * columns] = a + b;
          first[(i + half) * columns] = a - b;
        }
      }
      for (size_t i = 0; i < dim; ++i) first[i * columns] /= std::sqrt(static_cast<float>(dim));
    }
  }
  return bytes_of(keys);
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// With rotated caches the logits are equal, and new keys are rotated.
TEST(R3, ChangesKeysAndNoLogits) {
  for (const char* name : {"llama3_tied", "qwen3", "gemma3", "codegen", "smollm3", "granite",
                           "olmo2", "lfm2", "qwen3_5_text"}) {
    const Family family(name);
    ASSERT_TRUE(std::has_single_bit(static_cast<uint64_t>(family.config.head_dim)));
    const Model plain = family.model({});
    const Model turned = family.model({.rotation = converters::Rotation::kR3});
    const auto ports = inputs_of(plain, std::string(kPrefillForwardMethod));
    const Tensors inputs = family.inputs(ports);
    Tensors own = inputs;
    for (const graph::LoweredPort& port : ports) {
      if (!is_layer_port(port.name, kKCachePort)) continue;
      own[port.name] = rotated(floats_of(inputs.at(port.name)), port.shape);
    }
    const std::string method(kPrefillForwardMethod);
    Outputs expected = execute(plain, method, family.source, inputs);
    for (auto& [output, values] : expected) {
      if (!is_layer_port(output, kNewKPort)) continue;
      const ModelConfig& config = family.config;
      values = floats_of(rotated(values, {1, config.num_kv_heads, config.head_dim, 8}));
    }
    expect_near(expected, execute(turned, method, family.source, own), 1e-5F, name);
  }
}

// -- masked softmax

TEST(MaskedSoftmax, IsThePlainOneWhereScoresAreModerate) {
  for (const char* name : {"llama", "gemma2", "gemma3"}) {
    const Family family(name);
    const Model plain = family.model({});
    const Model masked = family.model({.softmax = converters::SoftmaxStyle::kMasked});
    for (const std::string_view method : {kKvForwardMethod, kPrefillForwardMethod}) {
      const std::string called(method);
      const Tensors inputs = family.inputs(inputs_of(plain, called));
      expect_near(execute(plain, called, family.source, inputs),
                  execute(masked, called, family.source, inputs), 1e-5F, name);
    }
  }
}

}  // namespace
}  // namespace ferry::plan::conversion_split_heads_families_test
