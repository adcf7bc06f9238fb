#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_convert_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

Json sorted(Json array) {
  std::sort(array.begin(), array.end());
  return array;
}

// Returns the number of bytes of all .ptd files.
size_t weight_bytes(const std::string& bundle) {
  size_t total = 0;
  for (const auto& [name, bytes] : files_in(bundle)) {
    if (name.ends_with(".ptd")) total += bytes.size();
  }
  return total;
}

TEST(Convert, DryRunPredictsEveryFileToTheByte) {
  const std::vector<Line> variants = {
      {},
      {"--dtype", "bf16"},
      {"--dtype", "f16", "--shards", "2"},
      {"--max-file-size", "100K"},
      {"--init-buffers", "all", "--context-length", "64"},
      {"--logits", "all", "--reference", fixture("qwen3_5_text/golden.safetensors")},
  };
  for (const Line& variant : variants) {
    SCOPED_TRACE(testing::PrintToString(variant));
    const TempDir dir;
    const Line line = Line{"convert", fixture("qwen3_5_text"), "-o", dir / "b", "--json"} + variant;
    const Outcome plan = run_ferry(line + Line{"--dry-run"});
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "b"));
    const Outcome done = run_ferry(line);
    ASSERT_EQ(done.code, 0) << done.err;
    Json document = plan.json()["result"], written = done.json()["result"];
    EXPECT_EQ(document["non_finite"], Json());  // a plan reads no weights
    EXPECT_EQ(written["non_finite"], Json::array());
    for (Json* result : {&document, &written}) {
      for (const char* differs : {"non_finite", "seconds", "path"}) result->erase(differs);
    }
    EXPECT_EQ(document, written);
    std::map<std::string, size_t> planned, actual;
    size_t total = 0;
    for (const Json& file : document["files"]) planned[file["path"]] = file["bytes"];
    for (const auto& [name, bytes] : files_in(dir / "b")) {
      actual[name] = bytes.size();
      total += bytes.size();
    }
    EXPECT_EQ(planned, actual);
    EXPECT_EQ(document["total_bytes"], total);
  }
}

TEST(Convert, EverySourceTensorIsAccountedForOnce) {
  const Json plan = run_ferry({"convert", fixture("qwen3_5_text"), "--dry-run", "--json"}).json();
  EXPECT_EQ(plan["model_type"], "qwen3_5_text");
  EXPECT_EQ(plan["unmapped"], Json::array());
  EXPECT_EQ(plan["missing"], Json::array());
  std::map<std::string, int> seen;
  for (const Json& entry : plan["entries"]) {
    EXPECT_NE(entry["rule"], "");
    EXPECT_FALSE(entry["targets"].empty() && entry["reason"] == "") << entry;
    if (entry["source"] != "") ++seen[entry["source"]];
  }
  const TensorFile file(fixture("qwen3_5_text/model.safetensors"));
  size_t tensors = 0;
  for (const auto& [name, entry] : file.header.items()) {
    if (name == "__metadata__") continue;
    ++tensors;
    EXPECT_EQ(seen[name], 1) << name;
  }
  EXPECT_EQ(seen.size(), tensors);
}

TEST(Convert, ADryRunSaysWhatIsDoneToEveryTensor) {
  const Json plan =
      run_ferry({"convert", fixture("golden/qwen3_next_dense"), "--dry-run", "--json"}).json();
  std::map<std::string, std::string> transforms;
  for (const Json& entry : plan["entries"]) transforms[entry["source"]] = entry["transform"];
  EXPECT_EQ(transforms["model.layers.0.input_layernorm.weight"], "+1");
  EXPECT_EQ(transforms["model.layers.0.linear_attn.norm.weight"], "copy");
  EXPECT_EQ(transforms["model.layers.0.linear_attn.A_log"], "-exp");

  const Outcome table = run_ferry({"convert", fixture("golden/qwen3_next_dense"), "--dry-run"});
  EXPECT_EQ(table.code, 0);
  for (const auto& [key, transform] : transforms) {
    EXPECT_NE(table.out.find("  " + key + " "), std::string::npos) << key;
  }
  const Outcome cast =
      run_ferry({"convert", fixture("llama3_tied"), "--dry-run", "--json", "--dtype", "bf16"});
  EXPECT_NE(cast.out.find("f32 to bf16"), std::string::npos);
}

TEST(Convert, ADryRunListsTheBuffers) {
  const Json plan = run_ferry({"convert", fixture("llama3_tied"), "--dry-run", "--json",
                               "--context-length", "32"})
                        .json();
  ASSERT_EQ(plan["buffers"].size(), 4U);  // keys and values of two layers
  for (const Json& buffer : plan["buffers"]) {
    EXPECT_EQ(buffer["shape"], Json({1, 32, 1, 32}));
    EXPECT_EQ(buffer["dtype"], "f32");
    EXPECT_EQ(buffer["bytes"], 32 * 32 * 4);
    EXPECT_EQ(buffer["init"], "none");
  }
}

TEST(Convert, ListsEveryMissingAndUnmappedKey) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.rename("model.norm.weight", "model.nurm.weight");
    file.rename("model.layers.1.mlp.up_proj.weight", "model.layers.7.mlp.up_proj.weight");
  });
  const Outcome outcome = run_ferry({"convert", source, "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 3);
  for (const char* key :
       {"'model.norm.weight'", "'model.nurm.weight'", "'model.layers.1.mlp.up_proj.weight'",
        "'model.layers.7.mlp.up_proj.weight'"}) {
    EXPECT_NE(outcome.err.find(key), std::string::npos) << key << "\n" << outcome.err;
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "b"));
  const Outcome plan = run_ferry({"convert", source, "--dry-run", "--json"});
  EXPECT_EQ(plan.code, 3);
  EXPECT_EQ(sorted(plan.json()["missing"]),
            Json({"model.layers.1.mlp.up_proj.weight", "model.norm.weight"}));
  EXPECT_EQ(sorted(plan.json()["unmapped"]),
            Json({"model.layers.7.mlp.up_proj.weight", "model.nurm.weight"}));
}

// Adds the prefix to every key of llama3_tied except those that `keep` names.
std::string prefixed_checkpoint(const TempDir& dir, const std::string& prefix,
                                const std::string& keep = "") {
  return changed_checkpoint(dir, "llama3_tied", [&](TensorFile& file) {
    std::vector<std::string> names;
    for (const auto& [name, entry] : file.header.items()) {
      if (name != "__metadata__" && name != keep) names.push_back(name);
    }
    for (const std::string& name : names) file.rename(name, prefix + name);
  });
}

TEST(Convert, PrefixesOfWrappersAreLeftOutByName) {
  const TempDir plain, wrapped;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", plain / "b"}).code, 0);
  const std::string source = prefixed_checkpoint(wrapped, "_orig_mod.module.");
  const Outcome done = run_ferry({"convert", source, "-o", wrapped / "b", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const Json document = done.json();
  EXPECT_EQ(document["prefixes"], Json::parse(R"([{"prefix": "_orig_mod.", "rule": "torch.compile"},
                            {"prefix": "module.", "rule": "DataParallel"}])"));
  EXPECT_EQ(document["entries"][0]["source"].get<std::string>().find("_orig_mod.module."), 0u);
  const auto expected = files_in(plain / "b"), made = files_in(wrapped / "b");
  for (const auto& [name, bytes] : expected) {
    if (name == "manifest.json") continue;
    EXPECT_TRUE(made.contains(name) && made.at(name) == bytes) << name;
  }
  const Outcome text = run_ferry({"convert", source, "--dry-run"});
  EXPECT_NE(text.out.find("'module.' before all keys left out: DataParallel"), std::string::npos);
}

TEST(Convert, APrefixThatOnlySomeKeysHaveIsRefused) {
  const TempDir dir;
  const std::string source = prefixed_checkpoint(dir, "module.", "model.norm.weight");
  const Outcome outcome = run_ferry({"convert", source, "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("unmapped: 'module.model.embed_tokens.weight'"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("missing: 'model.embed_tokens.weight'"), std::string::npos);
}

TEST(Convert, AMissingKeyIsNamedWithThePrefixOfTheOthers) {
  const TempDir dir;
  const std::string source = prefixed_checkpoint(dir, "module.");
  TensorFile file(source + "/model.safetensors");
  file.rename("module.model.norm.weight", "module.model.nurm.weight");
  file.write(source + "/model.safetensors");
  const Outcome outcome = run_ferry({"convert", source, "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("missing: 'module.model.norm.weight'"), std::string::npos)
      << outcome.err;
}

TEST(Convert, AnUntiedHeadThatIsAbsentIsExplained) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/mistral", [](TensorFile& file) {
    file.rename("lm_head.weight", "mtp.0.weight");
  });
  const Outcome outcome = run_ferry({"convert", source, "--dry-run", "--allow-unmapped", "mtp.*"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("missing: 'lm_head.weight'"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("tie_word_embeddings is false"), std::string::npos) << outcome.err;
}

TEST(Convert, AllowedKeysMayStayUnused) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.append("adapter.0.weight", "F32", {1}, std::string(4, '\0'));
    file.append("adapter.1.weight", "F32", {1}, std::string(4, '\0'));
  });
  EXPECT_EQ(run_ferry({"convert", source, "--dry-run"}).code, 3);
  EXPECT_EQ(run_ferry({"convert", source, "--dry-run", "--allow-unmapped", "adapter.0.*"}).code, 3);
  const Outcome allowed = run_ferry({"convert", source, "--dry-run", "--json", "--allow-unmapped",
                                     "adapter.0.*", "--allow-unmapped", "adapter.1.*"});
  EXPECT_EQ(allowed.code, 0) << allowed.err;
  EXPECT_EQ(allowed.json()["unmapped"], Json({"adapter.0.weight", "adapter.1.weight"}));
}

TEST(Convert, OutputIsTheSameForAnyNumberOfThreads) {
  const TempDir dir;
  for (const char* threads : {"1", "2", "8"}) {
    ASSERT_EQ(run_ferry({"convert", fixture("qwen3_5_text"), "-o", dir / threads, "--dtype", "bf16",
                         "--shards", "3", "--threads", threads})
                  .code,
              0);
  }
  EXPECT_EQ(files_in(dir / "1"), files_in(dir / "2"));
  EXPECT_EQ(files_in(dir / "1"), files_in(dir / "8"));
}

TEST(Convert, AnExistingBundleStaysUnlessOverwritten) {
  const TempDir dir;
  const Line line = {"convert", fixture("llama3_tied"), "-o", dir / "b"};
  ASSERT_EQ(run_ferry(line).code, 0);
  const auto before = files_in(dir / "b");
  const Outcome refused = run_ferry(line + Line{"--dtype", "f16"});
  EXPECT_EQ(refused.code, 6);
  EXPECT_EQ(refused.error_lines(), 1U);
  EXPECT_EQ(files_in(dir / "b"), before);
  EXPECT_EQ(run_ferry(line + Line{"--dtype", "f16", "--overwrite"}).code, 0);
  EXPECT_NE(files_in(dir / "b"), before);
}

TEST(Convert, TokenizerAndConfigFilesComeAlong) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  write_bytes(source + "/tokenizer.json", "{\"version\": \"1.0\"}");
  write_bytes(source + "/optimizer.json", "{}");
  ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b"}).code, 0);
  const auto files = files_in(dir / "b");
  EXPECT_EQ(files.at("tokenizer.json"), "{\"version\": \"1.0\"}");
  EXPECT_EQ(files.at("config.json"), read_bytes(source + "/config.json"));
  EXPECT_EQ(files.at("generation_config.json"), read_bytes(source + "/generation_config.json"));
  EXPECT_FALSE(files.contains("optimizer.json"));
}

// Stores a tied head under both names, with equal or with different bytes.
std::string with_head(const TempDir& dir, bool equal) {
  return changed_checkpoint(dir, "llama3_tied", [&](TensorFile& file) {
    std::string bytes = file.bytes_of("model.embed_tokens.weight");
    if (!equal) bytes.back() = static_cast<char>(bytes.back() ^ 1);
    file.append("lm_head.weight", "F32", {384, 64}, bytes);
  });
}

TEST(Convert, TiedWeightsAreStoredOnce) {
  const TempDir plain, doubled;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", plain / "b"}).code, 0);
  ASSERT_EQ(run_ferry({"convert", with_head(doubled, true), "-o", doubled / "b"}).code, 0);
  EXPECT_EQ(weight_bytes(plain / "b"), weight_bytes(doubled / "b"));
  const size_t source = TensorFile(fixture("llama3_tied/model.safetensors")).data.size();
  EXPECT_LT(weight_bytes(plain / "b"), source + size_t{384 * 64 * 4} / 2);
}

TEST(Convert, TiedNamesWithOtherValuesAreRefused) {
  const TempDir dir;
  const Outcome outcome = run_ferry({"convert", with_head(dir, false), "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("'lm_head.weight'"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.error_lines(), 1U);
}

TEST(Convert, UnknownFamiliesAreUnsupported) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  Json config = Json::parse(read_bytes(source + "/config.json"));
  config["model_type"] = "frobnicator";
  write_bytes(source + "/config.json", config.dump());
  const Outcome outcome = run_ferry({"convert", source, "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find("frobnicator"), std::string::npos);
  EXPECT_EQ(
      run_ferry({"convert", source, "--dry-run", "--config", fixture("llama3_tied/config.json")})
          .code,
      0);
}

TEST(Convert, ACheckpointWithoutConfigAsksForOne) {
  const TempDir dir;
  std::filesystem::copy(fixture("llama3_tied/model.safetensors"), dir / "model.safetensors");
  const Outcome outcome = run_ferry({"convert", dir.path(), "--dry-run"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("--config"), std::string::npos);
}

TEST(Convert, InitialContentsAreStoredOnRequestAndOnlyOnce) {
  std::map<std::string, std::pair<size_t, std::string>> by_mode;
  for (const char* mode : {"none", "state", "all"}) {
    const TempDir dir;
    const Outcome outcome =
        run_ferry({"convert", fixture("qwen3_5_text"), "-o", dir / "b", "--json", "--init-buffers",
                   mode, "--context-length", "256"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::string inits;
    const Json plan = outcome.json();
    for (const Json& buffer : plan["buffers"]) inits += buffer["init"].get<std::string>();
    by_mode[mode] = {files_in(dir / "b").at("decoder-00001-of-00001.pte").size(), inits};
  }
  EXPECT_EQ(by_mode["none"].second.find("stored"), std::string::npos);
  EXPECT_EQ(by_mode["all"].second.find("none"), std::string::npos);
  EXPECT_LE(by_mode["none"].first, by_mode["state"].first);
  // Keys and values of the one attention layer, 256 x 2 x 32 f32 each, are equal zeros, so they are
  // stored once.
  const size_t cache = 256 * 2 * 32 * 4;
  EXPECT_GE(by_mode["all"].first, by_mode["none"].first + cache);
  EXPECT_LT(by_mode["all"].first, by_mode["none"].first + 2 * cache);
}

}  // namespace
}  // namespace ferry::verb_convert_test
