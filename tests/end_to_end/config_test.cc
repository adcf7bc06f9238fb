// `convert` with unusual configs and key names: settings that it obeys, refuses and lists.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::config_test {
namespace {

using Json = nlohmann::json;

// Copies checkpoint `name` to `dir` with a config that has `changes`. null removes a key.
std::string with_config(
    const TempDir& dir, const std::string& name, const Json& changes,
    const std::function<void(TensorFile&)>& change = [](TensorFile&) {}) {
  std::string source = changed_checkpoint(dir, name, change);
  Json config = Json::parse(read_bytes(source + "/config.json"));
  config.merge_patch(changes);
  write_bytes(source + "/config.json", config.dump());
  return source;
}

std::vector<std::string> names_in(const TensorFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, row] : file.header.items()) {
    if (name != "__metadata__") names.push_back(name);
  }
  return names;
}

void expect_parity(const std::string& source, const std::string& golden) {
  const TempDir dir;
  const Outcome converted = run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f32"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Outcome verified = run_ferry({"verify", dir / "b", "--reference", fixture(golden)});
  EXPECT_EQ(verified.code, 0) << verified.out;
}

TEST(Config, KeysThatNothingUsedAreListedInTheDryRun) {
  const TempDir dir;
  const std::string source = with_config(
      dir, "llama3_tied", {{"sliding_window", 8}, {"rope_scaling", {{"finetuned", true}}}});
  const Outcome text = run_ferry({"convert", source, "--dry-run"});
  EXPECT_NE(text.out.find("config keys that have no effect: 'rope_scaling.finetuned', "
                          "'sliding_window'\n"),
            std::string::npos)
      << text.out;
  const Outcome json = run_ferry({"convert", source, "--dry-run", "--json"});
  EXPECT_EQ(json.json()["unused_config_keys"], (Json{"rope_scaling.finetuned", "sliding_window"}));
  const Outcome plain = run_ferry({"convert", fixture("llama3_tied"), "--dry-run", "--json"});
  EXPECT_EQ(plain.json()["unused_config_keys"], Json::array());
}

TEST(Config, WhatDependsOnTheVersionOfTransformersIsSaid) {
  const std::string said =
      "config.json: 'hidden_act' means the tanh approximation by gelu, as in transformers 5.23.0; "
      "in 5.12.1 it means the exact gelu\n";
  const TempDir dir;
  const Outcome text = run_ferry({"convert", fixture("golden/gemma_gelu"), "-o", dir / "b"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.err.find(said), std::string::npos) << text.err;
  const Outcome json = run_ferry({"convert", fixture("golden/gemma_gelu"), "--dry-run", "--json"});
  EXPECT_EQ(json.json()["version_readings"],
            (Json{{{"key", "hidden_act"},
                   {"reading", "means the tanh approximation by gelu"},
                   {"earlier", "means the exact gelu"}}}));
  const Outcome plain = run_ferry({"convert", fixture("golden/gemma"), "--dry-run", "--json"});
  EXPECT_EQ(plain.json()["version_readings"], Json::array());
}

TEST(Config, AHeadOfItsOwnIsUsedWhereTheConfigDoesNotSayThatItIsTied) {
  const TempDir dir, stated;
  const auto with_head = [](TensorFile& file) {
    const Json row = file.header["model.embed_tokens.weight"];
    std::string bytes = file.bytes_of("model.embed_tokens.weight");
    bytes[1] ^= 1;
    file.append("lm_head.weight", row["dtype"], row["shape"], bytes);
  };
  const Json absent = {{"tie_word_embeddings", nullptr}};
  const std::string source = with_config(dir, "golden/gemma", absent, with_head);
  const Outcome own = run_ferry({"convert", source, "-o", dir / "b"});
  EXPECT_EQ(own.code, 0) << own.err;
  const std::string tied = with_config(stated, "golden/gemma", Json::object(), with_head);
  const Outcome refused = run_ferry({"convert", tied, "-o", stated / "b"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.err.find("'tie_word_embeddings' of the config ties 'output.weight'"),
            std::string::npos)
      << refused.err;
}

TEST(Config, AnUnsupportedWrapperIsOneLine) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  Json config = Json::parse(read_bytes(source + "/config.json"));
  config = {{"model_type", "llava_next_video"},
            {"text_config", config},
            {"vision_config", Json::object()}};
  write_bytes(source + "/config.json", config.dump());
  for (const std::string format : {"--quiet", "--json"}) {
    const Outcome outcome = run_ferry({"convert", source, "--dry-run", format});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(outcome.error_lines(), 1U);
    EXPECT_NE(outcome.err.find("config.json: 'model_type' is 'llava_next_video': not supported"),
              std::string::npos)
        << outcome.err;
  }
}

TEST(Config, MessagesNameTheFileThatWasGiven) {
  const TempDir dir;
  Json config = Json::parse(read_bytes(fixture("llama3_tied/config.json")));
  config["hidden_act"] = "laplace";
  write_bytes(dir / "other.json", config.dump());
  const Outcome outcome =
      run_ferry({"convert", fixture("llama3_tied"), "--dry-run", "--config", dir / "other.json"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_NE(outcome.err.find(dir / "other.json" + ": 'hidden_act'"), std::string::npos)
      << outcome.err;
}

TEST(Config, ACheckpointOfTheBaseModelLacksItsPrefix) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    for (const std::string& name : names_in(file)) {
      if (name.starts_with("model.")) file.rename(name, name.substr(6));
    }
  });
  expect_parity(source, "llama3_tied/golden.safetensors");
  const Outcome outcome = run_ferry({"convert", source, "--dry-run"});
  EXPECT_NE(outcome.out.find("lack the prefix"), std::string::npos) << outcome.out;
}

TEST(Config, ATiedEmbeddingMayBeStoredAsTheHead) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    file.rename("model.embed_tokens.weight", "lm_head.weight");
  });
  expect_parity(source, "llama3_tied/golden.safetensors");
}

TEST(Config, ClassDefaultsAndOtherNamesGiveTheSameModel) {
  const TempDir dir;
  // The class default of max_position_embeddings is another number. All other values stay equal.
  const std::string source = with_config(dir, "llama3_tied",
                                         {{"max_position_embeddings", nullptr},
                                          {"hidden_act", "swish"},
                                          {"attention_bias", nullptr},
                                          {"partial_rotary_factor", 1.0}});
  expect_parity(source, "llama3_tied/golden.safetensors");
}

TEST(Config, TensorsThatOneRuleDroppedAreOneLine) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "qwen3_5_text", [](TensorFile& file) {
    for (const char* name : {"mtp.a", "mtp.b", "mtp.c"}) {
      file.append(name, "F32", {1}, std::string(4, '\0'));
    }
  });
  const Outcome table = run_ferry({"convert", source, "--dry-run"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("(3 tensors)"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("mtp.a"), std::string::npos);
  const Outcome done = run_ferry({"convert", source, "-o", dir / "b"});
  EXPECT_NE(done.out.find("  dropped 3 tensors (drop mtp.*): multi-token prediction"),
            std::string::npos)
      << done.out;
  const Outcome json = run_ferry({"convert", source, "--dry-run", "--json"});
  EXPECT_NE(json.out.find("mtp.a"), std::string::npos);
  EXPECT_NE(json.out.find("mtp.c"), std::string::npos);
}

}  // namespace
}  // namespace ferry::config_test
