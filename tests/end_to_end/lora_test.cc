// Adapters that are merged on conversion, end to end. The reference is transformers with weights
// that torch merged.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/cli/ferry_process.h"

namespace ferry::lora_test {
namespace {

using Json = nlohmann::json;

class Lora : public testing::Test {
 protected:
  std::string base_ = fixture("golden/llama"), adapter_ = fixture("lora");
  TempDir dir_;

  // Copies the adapter.
  std::string copy() {
    const std::string to = dir_ / "adapter";
    std::filesystem::create_directory(to);
    for (const auto& [file, bytes] : files_in(adapter_)) write_bytes(to + "/" + file, bytes);
    return to;
  }
};

TEST_F(Lora, IsMergedAsTheReferenceMergesIt) {
  const Outcome made =
      run_ferry({"convert", base_, "--lora", adapter_, "-o", dir_ / "b", "--dtype", "f32"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome verified =
      run_ferry({"verify", dir_ / "b", "--reference", adapter_ + "/golden.safetensors",
                 "--tolerance", "1e-4", "--json"});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

TEST_F(Lora, IsProvedAgainstTheCheckpointAndTheAdapter) {
  ASSERT_EQ(run_ferry({"convert", base_, "--lora", adapter_, "-o", dir_ / "b"}).code, 0);
  const Outcome verified =
      run_ferry({"verify", dir_ / "b", "--checkpoint", base_, "--lora", adapter_});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
  const Outcome without = run_ferry({"verify", dir_ / "b", "--checkpoint", base_});
  EXPECT_EQ(without.code, 1) << without.err << without.out;
}

// Files for other tools have the merged weights. The checkpoint of --to hf gives the same bundle as
// base and adapter together, and its outputs are those of the reference.
TEST_F(Lora, FilesForOtherToolsHaveTheMergedWeights) {
  const auto made = [&](std::vector<std::string> args, const std::string& format,
                        const std::string& name) {
    args.insert(args.begin(), "convert");
    args.insert(args.end(), {"--to", format, "-o", dir_ / name});
    args.insert(args.end(), {format == "gguf" ? "--outtype" : "--dtype", "f32"});
    const Outcome outcome = run_ferry(args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return dir_ / name;
  };
  const std::vector<std::string> at_once = {base_, "--lora", adapter_};
  const std::string hf = made(at_once, "hf", "hf");
  for (const char* format : {"safetensors", "pth", "gguf"}) {
    const std::string name = std::string("m.") + format;
    EXPECT_TRUE(read_bytes(made(at_once, format, name)) ==
                read_bytes(made({hf}, format, "again." + std::string(format))))
        << format;
  }
  const Outcome verified = run_ferry({"verify", dir_ / "m.gguf", "--reference",
                                      adapter_ + "/golden.safetensors", "--tolerance", "1e-4"});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
  const Outcome proved =
      run_ferry({"verify", dir_ / "m.gguf", "--checkpoint", base_, "--lora", adapter_});
  EXPECT_EQ(proved.code, 0) << proved.err << proved.out;
  EXPECT_EQ(run_ferry({"verify", dir_ / "m.gguf", "--checkpoint", base_}).code, 1);
}

// Merging into the checkpoint or into its GGUF file gives the same file.
TEST_F(Lora, OfAGgufFileIsThatOfItsCheckpoint) {
  const std::vector<std::string> to = {"--to", "gguf", "--outtype", "f32", "-o"};
  const auto made = [&](std::vector<std::string> args, const std::string& name) {
    args.insert(args.begin(), "convert");
    args.insert(args.end(), to.begin(), to.end());
    args.push_back(dir_ / name);
    const Outcome outcome = run_ferry(args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_bytes(dir_ / name);
  };
  made({base_}, "base.gguf");
  EXPECT_TRUE(made({dir_ / "base.gguf", "--lora", adapter_}, "a.gguf") ==
              made({base_, "--lora", adapter_}, "b.gguf"));
}

// Tensors that the adapter does not change keep their blocks. The others get new blocks.
TEST_F(Lora, IsMergedIntoAGgufFile) {
  ASSERT_EQ(
      run_ferry({"convert", base_, "--to", "gguf", "--outtype", "q8_0", "-o", dir_ / "base.gguf"})
          .code,
      0);
  const Outcome merged = run_ferry({"convert", dir_ / "base.gguf", "--lora", adapter_, "--to",
                                    "gguf", "-o", dir_ / "merged.gguf"});
  ASSERT_EQ(merged.code, 0) << merged.err;
  const Outcome proved = run_ferry(
      {"verify", dir_ / "merged.gguf", "--checkpoint", dir_ / "base.gguf", "--lora", adapter_});
  EXPECT_EQ(proved.code, 0) << proved.err;
  const Outcome plain =
      run_ferry({"verify", dir_ / "merged.gguf", "--checkpoint", dir_ / "base.gguf", "--json"});
  EXPECT_EQ(plain.code, 1);
  EXPECT_EQ(plain.json()["result"]["tensors"]["different"].size(), 11u);
}

// Merged weights are rounded once, to the dtype of the base.
TEST_F(Lora, KeepsTheDtypeOfTheBase) {
  ASSERT_EQ(run_ferry({"convert", base_, "--lora", adapter_, "-o", dir_ / "b"}).code, 0);
  const Json manifest = Json::parse(read_bytes(dir_ / "b/manifest.json"));
  EXPECT_EQ(manifest["components"][0]["weight_dtype"], "bf16");
}

TEST_F(Lora, StatesTheFilesOfTheAdapter) {
  ASSERT_EQ(run_ferry({"convert", base_, "--lora", adapter_, "-o", dir_ / "b"}).code, 0);
  std::set<std::string> files;
  const Json manifest = Json::parse(read_bytes(dir_ / "b/manifest.json"));
  for (const Json& file : manifest["source"]["files"])
    files.insert(file["path"].get<std::string>());
  EXPECT_EQ(files, (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                          "model.safetensors"}));
  // Another scale gives another bundle.
  const std::string adapter = copy();
  Json config = Json::parse(read_bytes(adapter + "/adapter_config.json"));
  config["lora_alpha"] = 7;
  write_bytes(adapter + "/adapter_config.json", config.dump());
  ASSERT_EQ(run_ferry({"convert", base_, "--lora", adapter, "-o", dir_ / "c"}).code, 0);
  const Json other = Json::parse(read_bytes(dir_ / "c/manifest.json"));
  EXPECT_NE(manifest["source"], other["source"]);
}

TEST_F(Lora, AccountsForEveryTensorOfTheAdapter) {
  const Outcome planned = run_ferry({"convert", base_, "--lora", adapter_, "-n", "--json"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  std::multiset<std::string> mapped, stored;
  const Json plan = planned.json();
  for (const Json& entry : plan["entries"]) {
    mapped.insert(entry["source"].get<std::string>());
  }
  for (const std::string& file :
       {base_ + "/model.safetensors", adapter_ + "/adapter_model.safetensors"}) {
    const TensorFile tensors(file);
    for (const auto& item : tensors.header.items()) {
      if (item.key() != "__metadata__") stored.insert(item.key());
    }
  }
  EXPECT_EQ(mapped, stored);
}

TEST_F(Lora, IsRefusedByTheNameOfWhatCannotBeMerged) {
  const struct {
    const char* change;
    int code;
    const char* says;
  } refusals[] = {
      {R"({"use_dora": true})", 3, "the magnitudes of the module are missing"},
      {R"({"peft_type": "IA3"})", 4, "'peft_type' is 'IA3'"},
      {R"({"bias": "all"})", 4, "'bias' is 'all'"},
      {R"({"init_lora_weights": "pissa"})", 4, "'init_lora_weights'"},
      {R"({"layer_replication": [[0, 2]]})", 4, "'layer_replication'"},
      {R"({"rank_pattern": {"(?=q).*_proj": 2}})", 4,
       "'rank_pattern': '(?=q).*_proj': has a group that begins with (?"},
      {R"({"alpha_pattern": {"q_proj(": 2}})", 3, "'q_proj(': is no regular expression"},
      {R"({"rank_pattern": {"q_proj": 2.5}})", 3, "'rank_pattern.q_proj'"},
      {R"({"r": 5})", 3, "rank 5"},
      {R"({"r": 0})", 3, "'r'"},
      {R"({"modules_to_save": ["lm_head", "embed_tokens"]})", 3,
       "adapter_config.json: 'modules_to_save' names 'embed_tokens', of which there is no tensor"},
      {R"({"modules_to_save": ["../x"]})", 3, "'modules_to_save' names '../x', which is no module"},
      {R"({"target_modules": ["nothing"]})", 3, "does not name its module"},
      {R"({"target_modules": []})", 3, "does not name its module"},
      {R"({"target_modules": "nothing"})", 3, "does not name its module"},
      {R"({"target_modules": 1})", 3, "'target_modules' is neither a list nor a text"},
      {R"({"target_modules": [1]})", 3, "'target_modules' is not a list of names"},
  };
  for (const auto& refusal : refusals) {
    const std::string adapter = copy();
    Json config = Json::parse(read_bytes(adapter + "/adapter_config.json"));
    config.merge_patch(Json::parse(refusal.change));
    write_bytes(adapter + "/adapter_config.json", config.dump());
    const Outcome outcome = run_ferry({"convert", base_, "--lora", adapter, "-n"});
    EXPECT_EQ(outcome.code, refusal.code) << refusal.change << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.says), std::string::npos) << outcome.err;
    std::filesystem::remove_all(adapter);
  }
}

// A null must not be read as an absent number, which would give another scale.
TEST_F(Lora, NumbersAreNoNulls) {
  for (const std::string key : {"lora_alpha", "r"}) {
    const std::string adapter = copy();
    Json config = Json::parse(read_bytes(adapter + "/adapter_config.json"));
    config[key] = nullptr;
    write_bytes(adapter + "/adapter_config.json", config.dump());
    const Outcome outcome = run_ferry({"convert", base_, "--lora", adapter, "-n"});
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("'" + key + "' is null"), std::string::npos) << outcome.err;
    std::filesystem::remove_all(adapter);
  }
}

// Ferry does not evaluate patterns of module names. It merges what the adapter holds.
TEST_F(Lora, TargetsMayBeAPattern) {
  const std::string adapter = copy();
  Json config = Json::parse(read_bytes(adapter + "/adapter_config.json"));
  for (const char* pattern : {"all-linear", ".*"}) {
    config["target_modules"] = pattern;
    write_bytes(adapter + "/adapter_config.json", config.dump());
    EXPECT_EQ(run_ferry({"convert", base_, "--lora", adapter, "-n"}).code, 0) << pattern;
  }
}

TEST_F(Lora, LeavesNoTensorOfTheAdapterOut) {
  const struct {
    const char *from, *to, *says;
  } refusals[] = {
      {"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
       "base_model.model.model.layers.9.mlp.down_proj.lora_A.weight", "other half"},
      {"base_model.model.model.embed_tokens.lora_embedding_A",
       "base_model.model.model.embed_tokens.lora_A.weight", "one half is of an embedding"},
      {"base_model.model.lm_head.weight", "base_model.model.score.weight",
       "the checkpoint has no 'score.weight'"},
      {"base_model.model.lm_head.weight", "lm_head.weight", "is a tensor of the checkpoint too"},
      {"base_model.model.lm_head.weight", "model.lm_head.weight", "does not begin with"},
      {"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
       "base_model.model.model.layers.0.mlp.down_proj.lora_C.weight", "no known kind"},
      {"base_model.model.lm_head.weight",
       "base_model.model.model.layers.0.mlp.down_proj.lora_magnitude_vector",
       "a magnitude, but 'use_dora' is not true"},
  };
  for (const auto& refusal : refusals) {
    const std::string adapter = copy();
    TensorFile file(adapter + "/adapter_model.safetensors");
    file.rename(refusal.from, refusal.to);
    file.write(adapter + "/adapter_model.safetensors");
    const Outcome outcome = run_ferry({"convert", base_, "--lora", adapter, "-n"});
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.says), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(adapter + "/adapter_model.safetensors: "), std::string::npos)
        << outcome.err;
    std::filesystem::remove_all(adapter);
  }
}

// peft saves the original weights in base_layer where an adapter replaces an embedding or a head.
TEST_F(Lora, ABaseLayerOfTheAdapterTakesThePlaceOfTheCheckpoints) {
  const std::string adapter = copy(), path = adapter + "/adapter_model.safetensors";
  TensorFile file(path);
  file.rename("base_model.model.lm_head.weight", "base_model.model.lm_head.base_layer.weight");
  file.write(path);
  for (const std::string& from : {adapter, adapter_}) {
    const Outcome made = run_ferry({"convert", base_, "--lora", from, "--to", "hf", "-o",
                                    dir_ / (from == adapter ? "renamed" : "saved")});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  EXPECT_TRUE(read_bytes(dir_ / "renamed/model.safetensors") ==
              read_bytes(dir_ / "saved/model.safetensors"));
}

// The adapter applies to quantised weights: they are dequantised and merged in one pass.
TEST_F(Lora, GoesOnTopOfAQuantisedCheckpoint) {
  const std::string base = fixture("quantized/awq"), adapter = dir_ / "adapter";
  std::filesystem::create_directory(adapter);
  write_bytes(adapter + "/adapter_config.json",
              R"({"peft_type": "LORA", "r": 1, "lora_alpha": 2})");
  TensorFile file(adapter_ + "/adapter_model.safetensors");
  file.header = Json::object();
  file.data.clear();
  const std::string zeros(32 * 4, '\0');
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj.";
  file.append(module + "lora_A.weight", "F32", {1, 32}, zeros);
  file.append(module + "lora_B.weight", "F32", {32, 1}, zeros);
  file.write(adapter + "/adapter_model.safetensors");
  ASSERT_EQ(run_ferry({"convert", base, "--lora", adapter, "-o", dir_ / "b"}).code, 0);
  const Outcome same = run_ferry({"verify", dir_ / "b", "--reference", base + "/golden.safetensors",
                                  "--checkpoint", base, "--lora", adapter});
  EXPECT_EQ(same.code, 0) << same.err << same.out;
}

}  // namespace
}  // namespace ferry::lora_test
