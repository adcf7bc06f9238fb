// The key tables, compared with the variables that KerasHub wrote, and with the name, shape and
// reordering that its own importer gives each of them.

#include "dialects/keras/keys.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "checkpoint/checkpoint.h"

namespace ferry::converters::keys_test {
namespace {

std::filesystem::path preset(const std::string& name) {
  return std::filesystem::path(FERRY_TESTDATA) / "keras" / name;
}

// Reads the sizes alone, without parse_model_config.
ModelConfig config_of(const std::string& name) {
  std::ifstream in(preset(name) / "huggingface.json");
  const nlohmann::json json = nlohmann::json::parse(in);
  ModelConfig config;
  config.model_type = config.text_type = json["model_type"];
  config.vocab_size = json["vocab_size"];
  config.hidden_size = json["hidden_size"];
  config.intermediate_size = json["intermediate_size"];
  config.num_layers = json["num_hidden_layers"];
  config.num_heads = json["num_attention_heads"];
  config.num_kv_heads = json["num_key_value_heads"];
  config.head_dim = json.value("head_dim", config.hidden_size / config.num_heads);
  return config;
}

struct Variable {
  std::string path, key, op;
  Shape stored, shape;
};

Shape parse_shape(const std::string& text) {
  std::istringstream in(text);
  Shape shape;
  for (int64_t dim = 0; in >> dim;) shape.push_back(dim);
  return shape;
}

std::vector<Variable> variables_of(const std::string& name) {
  std::ifstream in(preset(name) / "variables.txt");
  std::vector<Variable> variables;
  for (std::string line; std::getline(in, line);) {
    std::istringstream row(line);
    Variable v;
    std::string stored, shape;
    std::getline(row, v.path, '\t');
    std::getline(row, v.key, '\t');
    std::getline(row, v.op, '\t');
    std::getline(row, stored, '\t');
    std::getline(row, shape, '\t');
    v.stored = parse_shape(stored);
    v.shape = parse_shape(shape);
    variables.push_back(std::move(v));
  }
  return variables;
}

int64_t elements_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

// Tensors whose elements count up: element i of entry e is 100000 e + i.
class Counting : public TensorSource {
 public:
  explicit Counting(const std::vector<Variable>& variables) {
    for (const Variable& v : variables) add(v.path, v.stored);
  }
  void add(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    const auto bytes = static_cast<uint64_t>(elements_of(shape)) * dtype_bytes(dtype);
    entries_.push_back({.name = name, .dtype = dtype, .shape = std::move(shape), .bytes = bytes});
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    for (size_t at = 0; at < out.size(); at += sizeof(float)) {
      const float x = value(index, static_cast<int64_t>((offset + at) / sizeof(float)));
      std::memcpy(&out[at], &x, sizeof x);
    }
    return {};
  }
  static float value(size_t index, int64_t element) {
    return static_cast<float>(100000 * static_cast<int64_t>(index) + element);
  }
  std::vector<TensorEntry>& edit() { return entries_; }

 private:
  std::string path_ = "model.weights.h5";
  std::vector<SourceFile> files_ = {{.name = "model.weights.h5", .bytes = 1u << 30}};
  std::vector<TensorEntry> entries_;
};

// Returns where element (r, c) of the result is stored, by the definition of each reordering.
int64_t stored_at(const Variable& v, int64_t r, int64_t c) {
  const Shape& s = v.stored;
  if (v.op == "transpose") return c * s[1] + r;
  if (v.op == "merge_last_transpose") {  // [D, H, hd] -> [H * hd, D]
    const int64_t head = r / s[2], within = r % s[2];
    return (c * s[1] + head) * s[2] + within;
  }
  if (v.op == "merge_first_transpose") {  // [H, hd, D] -> [D, H * hd]
    const int64_t head = c / s[1], within = c % s[1];
    return (head * s[1] + within) * s[2] + r;
  }
  if (v.op == "swap_last_merge_first") {  // [H, D, hd] -> [H * hd, D]
    const int64_t head = r / s[2], within = r % s[2];
    return (head * s[1] + c) * s[2] + within;
  }
  EXPECT_TRUE(v.op == "copy" || v.op == "flatten") << v.op;
  return v.shape.size() == 1 ? r : r * v.shape[1] + c;
}

std::map<std::string, const graph::Recipe*> by_key(const KeyedTensors& keyed) {
  std::map<std::string, const graph::Recipe*> recipes;
  for (const KeyedTensor& tensor : keyed.tensors) recipes[tensor.key] = &tensor.recipe;
  return recipes;
}

class KerasKeysTest : public testing::TestWithParam<std::string> {};

TEST_P(KerasKeysTest, EveryVariableIsTheTensorThatItsImporterMakesIt) {
  const std::vector<Variable> variables = variables_of(GetParam());
  const Counting source(variables);
  ASSERT_TRUE(has_keras_paths(source));
  const auto keyed = key_keras_tensors(source, config_of(GetParam()));
  ASSERT_TRUE(keyed.has_value()) << keyed.error().message;
  const auto recipes = by_key(*keyed);
  EXPECT_EQ(recipes.size(), variables.size());
  for (size_t e = 0; e < variables.size(); ++e) {
    const Variable& v = variables[e];
    ASSERT_TRUE(recipes.contains(v.key)) << v.key;
    const graph::Recipe& recipe = *recipes.at(v.key);
    EXPECT_EQ(recipe.output().shape, v.shape) << v.key;
    EXPECT_EQ(source_names(recipe, source), v.path);
    EXPECT_EQ(keyed->names.at(v.key), v.path);
    std::vector<float> values(static_cast<size_t>(elements_of(v.shape)));
    ASSERT_TRUE(materialize(recipe, source, 0, std::as_writable_bytes(std::span(values))));
    const int64_t columns = v.shape.size() == 2 ? v.shape[1] : 1;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      ASSERT_EQ(values[i], Counting::value(e, stored_at(v, at / columns, at % columns)))
          << v.key << " " << i;
    }
  }
}

TEST_P(KerasKeysTest, ThePrefixOfATaskIsNoPartOfThePath) {
  std::vector<Variable> variables = variables_of(GetParam());
  const ModelConfig config = config_of(GetParam());
  const Counting plain(variables);
  for (Variable& v : variables) v.path = "layers/some_backbone/" + v.path;
  const Counting task(variables);
  EXPECT_EQ(has_keras_head(task), has_keras_head(plain));
  const auto expected = key_keras_tensors(plain, config);
  const auto found = key_keras_tensors(task, config);
  ASSERT_TRUE(found.has_value()) << found.error().message;
  ASSERT_EQ(found->tensors.size(), expected->tensors.size());
  for (size_t i = 0; i < found->tensors.size(); ++i) {
    EXPECT_EQ(found->tensors[i].key, expected->tensors[i].key);
    EXPECT_EQ(found->tensors[i].recipe, expected->tensors[i].recipe);
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, KerasKeysTest,
                         testing::Values("llama", "llama3", "qwen2", "qwen3", "gemma", "gemma2",
                                         "gemma3", "gemma3_deep"),
                         [](const auto& preset_name) { return preset_name.param; });

std::map<std::string, std::string> bytes_by_key(const KeyedTensors& keyed,
                                                const TensorSource& source) {
  std::map<std::string, std::string> tensors;
  for (const KeyedTensor& tensor : keyed.tensors) {
    std::string bytes(tensor.recipe.output().bytes(), '\0');
    EXPECT_TRUE(materialize(tensor.recipe, source, 0, std::as_writable_bytes(std::span(bytes))));
    tensors[tensor.key] = std::move(bytes);
  }
  return tensors;
}

TEST(KerasKeys, TheWeightsOfAPresetAreThoseOfTheHuggingFaceCheckpoint) {
  for (const std::string name : {"qwen2", "gemma2"}) {
    const auto source = checkpoint::open_tensors(preset(name).string());
    ASSERT_TRUE(source.has_value()) << source.error().message;
    const auto keyed = key_keras_tensors(**source, config_of(name));
    ASSERT_TRUE(keyed.has_value()) << keyed.error().message;
    const auto expected =
        checkpoint::open_tensors((preset(name) / "huggingface.safetensors").string());
    ASSERT_TRUE(expected.has_value()) << expected.error().message;
    EXPECT_TRUE(bytes_by_key(*keyed, **source) == bytes_by_key(key_by_name(**expected), **expected))
        << name;
  }
}

// -- tensors that are made of several variables, or of all experts

ModelConfig small_config(const std::string& type) {
  ModelConfig config;
  config.model_type = config.text_type = type;
  config.vocab_size = 7;
  config.hidden_size = 4;
  config.intermediate_size = 5;
  config.num_layers = 1;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 3;
  config.max_positions = 6;
  return config;
}

// Returns the values of the only tensor with `key`, whose shape must be `shape`.
std::vector<float> values_of(const Counting& source, const ModelConfig& config,
                             const std::string& key, const Shape& shape) {
  const auto keyed = key_keras_tensors(source, config);
  EXPECT_TRUE(keyed.has_value()) << keyed.error().message;
  const auto recipes = by_key(*keyed);
  EXPECT_TRUE(recipes.contains(key)) << key;
  if (!recipes.contains(key)) return {};
  EXPECT_EQ(recipes.at(key)->output().shape, shape);
  std::vector<float> values(static_cast<size_t>(elements_of(shape)));
  EXPECT_TRUE(materialize(*recipes.at(key), source, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

TEST(KerasKeys, PartsAreRowsOneAfterTheOther) {
  const std::string layer = "layers/phi3_decoder/";
  Counting source({});
  source.add(layer + "attention/value_dense/vars/0", {4, 1, 3});
  source.add(layer + "attention/query_dense/vars/0", {4, 2, 3});
  source.add(layer + "attention/key_dense/vars/0", {4, 1, 3});
  const auto values =
      values_of(source, small_config("phi3"), "model.layers.0.self_attn.qkv_proj.weight", {12, 4});
  for (int64_t row = 0; row < 12; ++row) {
    const size_t entry = row < 6 ? 1 : row < 9 ? 2 : 0;
    const int64_t first = row < 6 ? 0 : row < 9 ? 6 : 9, width = row < 6 ? 6 : 3;
    for (int64_t column = 0; column < 4; ++column) {
      ASSERT_EQ(values.at(static_cast<size_t>(row * 4 + column)),
                Counting::value(entry, column * width + row - first));
    }
  }
}

TEST(KerasKeys, GateAndUpOfAnExpertLieTogether) {
  const std::string bank = "layers/mixtral_transformer_decoder/_sparse_moe_block/expert_bank/";
  ModelConfig config = small_config("mixtral");
  config.moe.experts = 3;
  config.moe.expert_size = 2;
  config.moe.layers = {true};
  Counting source({});
  for (const char* name : {"vars/0", "vars/1"}) source.add(bank + name, {3, 4, 2});
  const auto values =
      values_of(source, config, "model.layers.0.mlp.experts.gate_up_proj", {3, 4, 4});
  for (int64_t expert = 0; expert < 3; ++expert) {
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t column = 0; column < 4; ++column) {
        ASSERT_EQ(
            values.at(static_cast<size_t>((expert * 4 + row) * 4 + column)),
            Counting::value(static_cast<size_t>(row / 2), (expert * 4 + column) * 2 + row % 2));
      }
    }
  }
}

TEST(KerasKeys, PositionsOfOptBeginInTheThirdRow) {
  Counting source({});
  source.add("layers/token_and_position_embedding/position_embedding/vars/0", {6, 4});
  const auto values =
      values_of(source, small_config("opt"), "model.decoder.embed_positions.weight", {8, 4});
  for (int64_t i = 0; i < 24; ++i) {
    EXPECT_EQ(values.at(static_cast<size_t>(i + 8)), Counting::value(0, i));
  }
}

TEST(KerasKeys, AMissingPartIsNamed) {
  const std::string layer = "layers/phi3_decoder/attention/";
  Counting source({});
  source.add(layer + "query_dense/vars/0", {4, 2, 3});
  source.add(layer + "value_dense/vars/0", {4, 1, 3});
  const auto keyed = key_keras_tensors(source, small_config("phi3"));
  ASSERT_TRUE(keyed.has_value());
  EXPECT_TRUE(keyed->tensors.empty());
  EXPECT_EQ(keyed->names.at("model.layers.0.self_attn.qkv_proj.weight"),
            layer + "key_dense/vars/0");
}

TEST(KerasKeys, AVisionEncoderMakesNoWeight) {
  Counting source({});
  source.add("layers/qwen3_5_vision_encoder/pos_embed/vars/0", {16, 8});
  source.add("layers/qwen3_5_backbone/layers/qwen3_5_vision_encoder/pos_embed/vars/1", {8});
  source.add("layers/other_encoder/pos_embed/vars/0", {16, 8});
  const auto keyed = key_keras_tensors(source, small_config("qwen3_5_text"));
  ASSERT_TRUE(keyed.has_value());
  ASSERT_EQ(keyed->tensors.size(), 3u);
  EXPECT_EQ(keyed->tensors[0].unused, "vision tower: only the text part is built");
  EXPECT_EQ(keyed->tensors[1].unused, keyed->tensors[0].unused);
  EXPECT_EQ(keyed->tensors[2].unused, "");
}

TEST(KerasKeys, LayersWithAndWithoutExpertsHaveDifferentVariables) {
  ModelConfig config = small_config("qwen3_moe");
  config.num_layers = 2;
  config.moe.experts = 3;
  config.moe.expert_size = 2;
  config.moe.layers = {false, true};
  const auto keyed = key_keras_tensors(Counting({}), config);
  ASSERT_TRUE(keyed.has_value());
  EXPECT_TRUE(keyed->names.contains("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_FALSE(keyed->names.contains("model.layers.0.mlp.gate.weight"));
  EXPECT_FALSE(keyed->names.contains("model.layers.1.mlp.gate_proj.weight"));
  EXPECT_EQ(keyed->names.at("model.layers.1.mlp.gate.weight"),
            "layers/qwen3_moe_transformer_decoder_1/mlp/_sparse_feedforward_gate_dense/vars/0");
}

TEST(KerasKeys, OnlyVariablesAreKerasPaths) {
  Counting source({});
  source.add("model.layers.0.mlp.up_proj.weight", {4, 4});
  source.add("model_weights/dense/dense/kernel", {4, 4});
  source.add("layers/dense/vars/", {4});
  source.add("layers/dense/vars/x1", {4});
  source.add("layers/dense/myvars/1", {4});
  EXPECT_FALSE(has_keras_paths(source));
  source.add("layers/dense/vars/12", {4});
  EXPECT_TRUE(has_keras_paths(source));
}

TEST(KerasKeys, PathsThatAreNearlyRightStayWhatTheyAre) {
  const ModelConfig config = config_of("qwen3");
  for (const char* path :
       {"layers/qwen3_transformer_decoder_0/_feedforward_layernorm/vars/0",
        "layers/qwen3_transformer_decoder_2/_feedforward_layernorm/vars/0",
        "layers/qwen3_transformer_decoder_01/_feedforward_layernorm/vars/0",
        "layers/qwen3_transformer_decoder/_feedforward_layernorm/vars/1",
        "layers/qwen_transformer_decoder/_feedforward_layernorm/vars/0",
        "qwen3_transformer_decoder/_feedforward_layernorm/vars/0",
        "layers/other/layers/qwen3_layer_norm/vars/0", "layers/", "layers/a_backbone/", "/", ""}) {
    Counting source({});
    source.add(path, {32});
    const auto keyed = key_keras_tensors(source, config);
    ASSERT_TRUE(keyed.has_value()) << path;
    EXPECT_EQ(keyed->tensors[0].key, path);
  }
}

Error error_of(const Counting& source, const ModelConfig& config) {
  const auto keyed = key_keras_tensors(source, config);
  EXPECT_FALSE(keyed.has_value());
  return keyed ? Error{} : keyed.error();
}

TEST(KerasKeys, AnotherShapeIsRefusedUnderItsPath) {
  const ModelConfig config = config_of("qwen2");
  const std::vector<Variable> variables = variables_of("qwen2");
  for (size_t i = 0; i < variables.size(); ++i) {
    for (const bool rank : {true, false}) {
      Counting source(variables);
      Shape& shape = source.edit()[i].shape;
      if (rank) {
        shape.push_back(1);
      } else {
        std::swap(shape.front(), ++shape.back());  // gives another shape in any case
      }
      const Error error = error_of(source, config);
      EXPECT_EQ(error.code, ErrorCode::kBadInput);
      EXPECT_EQ(error.message, "model.weights.h5: shape: '" + variables[i].path + "' is " +
                                   to_string(shape) + ", the config wants " +
                                   to_string(variables[i].stored));
      EXPECT_TRUE(error.details.empty());
    }
  }
}

TEST(KerasKeys, AllOtherShapesAreListed) {
  Counting source(variables_of("qwen2"));
  for (TensorEntry& entry : source.edit()) ++entry.shape[0];
  const Error error = error_of(source, config_of("qwen2"));
  EXPECT_EQ(error.message, "model.weights.h5: 27 variables have other shapes than the config says");
  EXPECT_EQ(error.details.size(), 27u);
}

TEST(KerasKeys, SwappedHeadsAreNotTakenForAnotherLayout) {
  // Both [D, H, hd] and [D, hd, H] would give the expected shape.
  Counting source({});
  source.add("layers/qwen_transformer_decoder/_self_attention_layer/_query_dense/vars/0",
             {24, 6, 4});
  EXPECT_EQ(error_of(source, config_of("qwen2")).code, ErrorCode::kBadInput);
}

TEST(KerasKeys, TwoPathsOfOneTensorAreRefused) {
  Counting source({});
  source.add("layers/qwen3_layer_norm/vars/0", {32});
  source.add("layers/qwen3_backbone/layers/qwen3_layer_norm/vars/0", {32});
  const Error error = error_of(source, config_of("qwen3"));
  EXPECT_EQ(error.code, ErrorCode::kBadInput);
  EXPECT_EQ(error.message,
            "model.weights.h5: 'layers/qwen3_layer_norm/vars/0' and "
            "'layers/qwen3_backbone/layers/qwen3_layer_norm/vars/0' are both model.norm.weight");
}

TEST(KerasKeys, QuantisedAndLoraFilesAreUnsupported) {
  Counting quantised({});
  quantised.add("layers/reversible_embedding/vars/0", {300, 32}, DType::kI8);
  Error error = error_of(quantised, config_of("qwen3"));
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(error.message,
            "model.weights.h5: 'layers/reversible_embedding/vars/0' is i8: quantised presets are "
            "not supported");

  Counting lora({});
  lora.add("lora/9/vars/lora_kernel_a", {16, 1, 2});
  EXPECT_TRUE(has_keras_paths(lora));
  error = error_of(lora, config_of("qwen3"));
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("'lora/9/vars/lora_kernel_a'"), std::string::npos);
}

TEST(KerasKeys, FamiliesWithoutATableAreUnsupported) {
  ModelConfig config = config_of("qwen3");
  config.text_type = "granite";
  Counting source({});
  source.add("layers/reversible_embedding/vars/0", {300, 32});
  const Error error = error_of(source, config);
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_EQ(error.message,
            "model.weights.h5: Keras weights of model_type 'granite' are not supported; supported "
            "are gemma, gemma2, gemma3_text, gpt2, gpt_neox, gpt_oss, llama, mistral, mixtral, "
            "opt, phi3, "
            "qwen2, qwen2_moe, qwen3, qwen3_5_text, qwen3_5_moe_text, qwen3_moe, smollm3");
}

}  // namespace
}  // namespace ferry::converters::keys_test
