// KerasHub presets and Keras weight files end to end.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/cli/ferry_process.h"

namespace ferry::keras_test {
namespace {

using Json = nlohmann::json;

// Copies the sharded preset without the files that only tests need.
void copy_preset(const TempDir& dir, const std::string& name) {
  for (const auto& [file, bytes] : files_in(fixture("keras/" + name))) {
    if (file.starts_with("huggingface") || file == "variables.txt") continue;
    write_bytes(dir / file, bytes);
  }
}

Json edit_config(const TempDir& dir, const std::function<void(Json&)>& change) {
  Json config = Json::parse(read_bytes(dir / "config.json"));
  change(config["config"]);
  write_bytes(dir / "config.json", config.dump());
  return config;
}

// Returns the lines of stderr.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return lines;
}

TEST(Keras, APresetHoldsTheWeightsOfTheHuggingFaceCheckpointBitByBit) {
  const TempDir keras, other;
  copy_preset(keras, "qwen2");
  write_bytes(other / "config.json", read_bytes(fixture("keras/qwen2/huggingface.json")));
  write_bytes(other / "model.safetensors",
              read_bytes(fixture("keras/qwen2/huggingface.safetensors")));
  std::map<std::string, std::string> weights[2];
  for (const TempDir* dir : {&keras, &other}) {
    const Outcome done = run_ferry({"convert", dir->path(), "-o", *dir / "b", "--context-length",
                                    "256", "--prefill-length", "64"});
    ASSERT_EQ(done.code, 0) << done.err;
    for (auto& [name, bytes] : files_in(*dir / "b")) {
      if (name.ends_with(".ptd")) weights[dir == &other][name] = std::move(bytes);
    }
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_TRUE(weights[0] == weights[1]);
}

class KerasPreset : public testing::TestWithParam<std::string> {};

TEST_P(KerasPreset, IsAtParityWithTheOriginalModel) {
  const TempDir dir;
  copy_preset(dir, GetParam());
  const Outcome done = run_ferry({"convert", dir.path(), "-o", dir / "b", "--dtype", "f32"});
  ASSERT_EQ(done.code, 0) << done.err;
  const Outcome verified = run_ferry({"verify", dir / "b", "--reference",
                                      dir / "golden.safetensors", "--tolerance", "1e-4", "--json"});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

INSTANTIATE_TEST_SUITE_P(Presets, KerasPreset,
                         testing::Values("qwen2", "mistral", "phi3", "smollm3", "mixtral",
                                         "qwen2_moe", "qwen3_moe", "gpt_oss", "qwen3_5",
                                         "qwen3_5_moe", "gpt2", "opt", "gpt_neox"),
                         [](const auto& preset_name) { return preset_name.param; });

TEST(Keras, TheReportHasThePathsOfTheFile) {
  const Outcome plan = run_ferry({"convert", fixture("keras/qwen2"), "--dry-run", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const Json document = plan.json();
  EXPECT_EQ(document["model_type"], "qwen2");
  std::map<std::string, Json> targets;
  for (const Json& entry : document["entries"]) targets[entry["source"]] = entry["targets"];
  EXPECT_EQ(targets.size(), 27u);
  EXPECT_EQ(targets["layers/reversible_embedding/vars/1"], Json::array({"output.weight"}));
  EXPECT_EQ(targets["layers/qwen_transformer_decoder_1/_self_attention_layer/_key_dense/vars/1"],
            Json::array({"layers.1.attention.wk.bias"}));
}

TEST(Keras, TheReportNamesAllVariablesOfATensor) {
  const Outcome plan = run_ferry({"convert", fixture("keras/phi3"), "--dry-run", "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const std::string layer = "layers/phi3_decoder_1/attention/";
  bool found = false;
  const Json document = plan.json();
  for (const Json& entry : document["entries"]) {
    if (entry["source"] != layer + "query_dense/vars/0 + " + layer + "key_dense/vars/0 + " + layer +
                               "value_dense/vars/0") {
      continue;
    }
    found = true;
    EXPECT_EQ(entry["targets"],
              (Json{"layers.1.attention.wq.weight", "layers.1.attention.wk.weight",
                    "layers.1.attention.wv.weight"}));
  }
  EXPECT_TRUE(found) << plan.out;
}

TEST(Keras, TheBundleGetsAHuggingFaceConfigAndNoKerasObject) {
  const TempDir dir;
  copy_preset(dir, "qwen2");
  write_bytes(dir / "tokenizer.json",
              R"({"class_name": "QwenTokenizer", "config": {}, "registered_name": "x"})");
  const Outcome done = run_ferry({"convert", dir.path(), "-o", dir / "b"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto files = files_in(dir / "b");
  EXPECT_FALSE(files.contains("tokenizer.json"));
  EXPECT_FALSE(files.contains("metadata.json"));
  const Json config = Json::parse(files.at("config.json"));
  EXPECT_EQ(config["model_type"], "qwen2");
  EXPECT_EQ(config["hidden_size"], 24);
}

TEST(Keras, AHuggingFaceConfigDoesAsWell) {
  const TempDir dir;
  copy_preset(dir, "qwen2");
  const std::string config = fixture("keras/qwen2/huggingface.json");
  std::filesystem::remove(dir / "config.json");
  Outcome outcome = run_ferry({"convert", dir.path(), "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("no config.json beside the checkpoint"), std::string::npos);
  outcome = run_ferry({"convert", dir.path(), "--config", config, "-o", dir / "b"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(files_in(dir / "b").at("config.json"), read_bytes(config));
}

TEST(Keras, VariablesThatAreMissingOrUnknownAreNamedAsTheFileNamesThem) {
  const TempDir dir;
  copy_preset(dir, "qwen2");
  // The config states one layer more than there is, then one less.
  edit_config(dir, [](Json& config) { config["num_layers"] = 3; });
  Outcome outcome = run_ferry({"convert", dir.path(), "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(lines_of(outcome.err).size(), 13u) << outcome.err;
  EXPECT_NE(outcome.err.find("missing: 'layers/qwen_transformer_decoder_2/"
                             "_feedforward_gate_dense/vars/0' [40, 24]"),
            std::string::npos)
      << outcome.err;

  edit_config(dir, [](Json& config) { config["num_layers"] = 1; });
  outcome = run_ferry({"convert", dir.path(), "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(lines_of(outcome.err).size(), 13u) << outcome.err;
  EXPECT_NE(outcome.err.find("unmapped: 'layers/qwen_transformer_decoder_1/_feedforward_layernorm/"
                             "vars/0' f32 [24] (nearest known key: "
                             "'layers/qwen_transformer_decoder/_feedforward_layernorm/vars/0')"),
            std::string::npos)
      << outcome.err;
  outcome = run_ferry({"convert", dir.path(), "--dry-run", "--allow-unmapped",
                       "layers/qwen_transformer_decoder_1/*"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(Keras, AnotherShapeThanTheConfigSaysIsOneLineWithThePath) {
  const TempDir dir;
  copy_preset(dir, "qwen2");
  edit_config(dir, [](Json& config) { config["vocabulary_size"] = 65; });
  const Outcome outcome = run_ferry({"convert", dir.path(), "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("2 variables have other shapes than the config says"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("shape: 'layers/reversible_embedding/vars/1' is [24, 64], the config "
                             "wants [24, 65]"),
            std::string::npos)
      << outcome.err;
}

TEST(Keras, QuantisedAndLegacyFilesAreUnsupportedInOneLine) {
  const std::string config = fixture("keras/qwen3/config.json");
  const std::pair<const char*, const char*> cases[] = {
      {"hdf5/qwen3_int8.weights.h5", "is i8: quantised presets are not supported"},
      {"hdf5/legacy_model.h5", "a legacy Keras file"},
      {"hdf5/legacy_split_names.h5", "a legacy Keras file"},
  };
  for (const auto& [file, message] : cases) {
    const Outcome outcome = run_ferry({"convert", fixture(file), "--config", config, "--dry-run"});
    EXPECT_EQ(outcome.code, 4) << file;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(Keras, AFunctionalModelIsListedKeyByKey) {
  const Outcome outcome = run_ferry({"convert", fixture("hdf5/functional_f16.weights.h5"),
                                     "--config", fixture("keras/qwen3/config.json"), "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("unmapped: 'layers/dense/vars/0' f16"), std::string::npos)
      << outcome.err;
}

TEST(Keras, OtherModelsAreUnsupportedInOneLine) {
  const TempDir dir;
  copy_preset(dir, "qwen2");
  Json config = Json::parse(read_bytes(dir / "config.json"));
  config["class_name"] = "Functional";
  config["registered_name"] = "Functional";
  write_bytes(dir / "config.json", config.dump());
  const Outcome outcome = run_ferry({"convert", dir.path(), "--dry-run"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.error_lines(), 1u);
  EXPECT_NE(outcome.err.find("'Functional', which is not supported; supported are GemmaBackbone"),
            std::string::npos)
      << outcome.err;
}

}  // namespace
}  // namespace ferry::keras_test
