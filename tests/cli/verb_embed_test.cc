// ferry embed. The reference for vectors is transformers' states with torch's modules after them.
// The reference for files is numpy's description of its format.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/cli/checkpoints.h"
#include "tests/cli/schema_check.h"

namespace ferry::verb_embed_test {
namespace {

using Json = nlohmann::json;

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

std::vector<double> numbers_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out).get<std::vector<double>>();
}

TEST(Embed, GivesTheVectorsOfTexts) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(with_tokenizer(dir), dir / "b", {"--dtype", "f32"}).code, 0);
  for (const Json& row : Json::parse(read_bytes(encoder("embedding_gemma") + "/texts.json"))) {
    std::vector<std::string> line = {"embed", dir / "b", "--text", row["text"], "--json"};
    if (row["prompt"] != "") line.insert(line.end(), {"--prompt-name", row["prompt"]});
    const Outcome outcome = run_ferry(line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(schema_problems("embed.json", outcome.json()).empty());
    const Json text = outcome.json()["result"]["texts"][0];
    EXPECT_EQ(text["tokens"], row["ids"].size());
    ASSERT_EQ(text["embedding"].size(), row["embedding"].size());
    for (size_t i = 0; i < row["embedding"].size(); ++i) {
      EXPECT_NEAR(text["embedding"][i].get<double>(), row["embedding"][i].get<double>(), 1e-5);
    }
  }
}

// The vectors are as wide as its states, which are not as wide as its layers.
TEST(Embed, GivesTheVectorsOfAModelForMoreThanTexts) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("embedding_gemma2"), dir / "b", {"--dtype", "f32"}).code, 0);
  for (const Json& row : Json::parse(read_bytes(encoder("embedding_gemma2") + "/texts.json"))) {
    const Outcome outcome =
        run_ferry({"embed", dir / "b", "--text", row["text"].get<std::string>()});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto vector = Json::parse(outcome.out).get<std::vector<double>>();
    ASSERT_EQ(vector.size(), row["embedding"].size());
    for (size_t i = 0; i < vector.size(); ++i) {
      EXPECT_NEAR(vector[i], row["embedding"][i].get<double>(), 1e-5);
    }
  }
}

TEST(Embed, AnswersEachLineOfItsInput) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(with_tokenizer(dir), dir / "b", {"--dtype", "f32"}).code, 0);
  const Outcome one = run_ferry({"embed", dir / "b", "--text", "Mars is red."});
  const Outcome two = run_ferry_on("\"Mars is red.\"\n\n\"Mars is red.\"\n", {"embed", dir / "b"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.out, one.out + one.out);
  const Outcome bad = run_ferry_on("Mars\n", {"embed", dir / "b"});
  EXPECT_EQ(bad.code, 3);
  const Outcome states = run_ferry({"embed", dir / "b", "--tokens", "4,5,6", "--states"});
  EXPECT_EQ(Json::parse(states.out).size(), 3U);
}

// Texts of several lengths, in calls of several texts, side by side.
TEST(Embed, GivesTheVectorsOfManyTextsAtOnce) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("bert"), dir / "b", {"--dtype", "f32"}).code, 0);
  const Json rows = Json::parse(read_bytes(encoder("bert") + "/texts.json"));
  for (const std::string prompt : {"", "query"}) {
    std::string lines;
    std::vector<Json> wanted;
    for (int i = 0; i < 60; ++i) {
      const Json& row = rows[static_cast<size_t>(i) % rows.size()];
      if (row["prompt"] != prompt) continue;
      lines += row["text"].dump() + "\n";
      wanted.push_back(row["embedding"]);
    }
    std::vector<std::string> line = {"embed", dir / "b", "--truncate", "--json"};
    if (!prompt.empty()) line.insert(line.end(), {"--prompt-name", prompt});
    const Outcome outcome = run_ferry_on(lines, line);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json texts = outcome.json()["result"]["texts"];
    ASSERT_EQ(texts.size(), wanted.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_EQ(texts[i]["embedding"].size(), wanted[i].size());
      for (size_t j = 0; j < wanted[i].size(); ++j) {
        EXPECT_NEAR(texts[i]["embedding"][j].get<double>(), wanted[i][j].get<double>(), 2e-6);
      }
    }
  }
}

// With memory for one encoder there are no others beside it.
TEST(Embed, ManyTextsShareTheMemory) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("bert"), dir / "b", {"--dtype", "f32"}).code, 0);
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "\"a text, and one more of its kind\"\n";
  const auto embed = [&](int64_t memory) {
    return run_ferry_on(lines,
                        {"embed", dir / "b", "--threads", "2", "--memory", std::to_string(memory)});
  };
  int64_t memory = 1 << 12;
  while (embed(memory).code != 0) ASSERT_LT(memory *= 2, int64_t{1} << 32);
  EXPECT_EQ(embed(memory).out, embed(8 * memory).out);
}

// A text that is too long is refused, and the texts before it are answered.
TEST(Embed, AnswersTheTextsBeforeOneThatIsRefused) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("bert"), dir / "b", {"--dtype", "f32"}).code, 0);
  const std::string longer(60, '?');
  const Outcome outcome = run_ferry_once(
      {"embed", dir / "b", "--text", "mars", "--text", "is", "--text", longer, "--text", "red"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 2) << outcome.out;
}

// Adds a pooling and a dense module to llama_two_way.
std::string with_modules(const std::string& to, const Json& row) {
  std::filesystem::create_directories(to);
  std::filesystem::copy(encoder("llama_two_way"), to);
  std::filesystem::create_directories(to + "/1_Pooling");
  std::filesystem::create_directories(to + "/2_Dense");
  const std::string types = "sentence_transformers.models.";
  write_bytes(to + "/modules.json", Json({{{"type", types + "Transformer"}, {"path", ""}},
                                          {{"type", types + "Pooling"}, {"path", "1_Pooling"}},
                                          {{"type", types + "Dropout"}, {"path", "9_Dropout"}},
                                          {{"type", types + "Dense"}, {"path", "2_Dense"}}})
                                        .dump());
  write_bytes(to + "/1_Pooling/config.json", Json({{"pooling_mode", row["pooling"]}}).dump());
  const auto weight = row["weight"].get<std::vector<float>>();
  const auto bias = row["bias"].get<std::vector<float>>();
  const auto out = static_cast<int64_t>(bias.size());
  const auto in = static_cast<int64_t>(weight.size()) / out;
  write_bytes(
      to + "/2_Dense/config.json",
      Json({{"in_features", in}, {"out_features", out}, {"activation_function", row["function"]}})
          .dump());
  TensorFile tensors(to + "/model.safetensors");
  tensors.header = nlohmann::ordered_json::object();
  tensors.data.clear();
  tensors.append("linear.weight", "F32", {out, in}, bytes_of(weight));
  tensors.append("linear.bias", "F32", {out}, bytes_of(bias));
  tensors.write(to + "/2_Dense/model.safetensors");
  return to;
}

// Every pooling and every activation of a dense module is tested, in one program and in parts.
TEST(Embed, PoolsAndActivatesAsTheReferenceDoes) {
  const TempDir dir;
  const Json golden = Json::parse(read_bytes(encoder("poolings.json")));
  std::string tokens;
  for (const Json& id : golden["tokens"]) tokens += (tokens.empty() ? "" : ",") + id.dump();
  for (const Json& row : golden["rows"]) {
    const std::string name = row["pooling"];
    const std::string source = with_modules(dir / name, row);
    for (const std::string shards : {"1", "2"}) {
      const std::string made = dir / (name + shards);
      const Outcome converted =
          convert_encoder(source, made, {"--dtype", "f32", "--shards", shards});
      ASSERT_EQ(converted.code, 0) << converted.err;
      const auto got = numbers_of(run_ferry({"embed", made, "--tokens", tokens}));
      ASSERT_EQ(got.size(), row["embedding"].size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], row["embedding"][i].get<double>(), 1e-5) << name;
      }
      EXPECT_EQ(run_ferry({"verify", made, "--checkpoint", source, "-q"}).code, 0) << name;
    }
  }
}

class Vectors : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(convert_encoder(with_tokenizer(dir_), made_, {"--dtype", "f32"}).code, 0);
    all_ = embed("Mars is red.", {});
  }
  std::vector<double> embed(const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> line = {"embed", made_, "--text", text};
    line.insert(line.end(), more.begin(), more.end());
    return numbers_of(run_ferry(line));
  }

  TempDir dir_;
  const std::string made_ = dir_ / "b";
  std::vector<double> all_;
};

TEST_F(Vectors, AreCutAndNormalised) {
  const auto first = embed("Mars is red.", {"--truncate-dim", "3"});
  EXPECT_EQ(first, std::vector<double>(all_.begin(), all_.begin() + 3));
  const double norm = std::sqrt(first[0] * first[0] + first[1] * first[1] + first[2] * first[2]);
  const auto unit = embed("Mars is red.", {"--truncate-dim", "3", "--normalize"});
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(unit[i], first[i] / norm, 1e-6);
  EXPECT_GT(std::fabs(norm - 1), 0.01);
  for (const std::string width : {"0", "9999", "-1"}) {
    const Outcome wrong = run_ferry({"embed", made_, "--text", "a", "--truncate-dim", width});
    EXPECT_EQ(wrong.code, 2) << wrong.err;
  }
}

// Texts are stripped as Python's str.strip() does, also of white space beyond ASCII.
TEST_F(Vectors, DoNotDependOnWhiteSpaceAround) {
  EXPECT_EQ(embed(" \t\u00a0Mars is red.\u3000\n", {}), all_);
  EXPECT_NE(embed("Mars  is red.", {}), all_);
}

TEST_F(Vectors, TakeAPromptAsText) {
  const Json prompts = Json::parse(
      read_bytes(encoder("embedding_gemma") + "/config_sentence_transformers.json"))["prompts"];
  const auto name = prompts.begin();
  const auto named = embed("Mars is red.", {"--prompt-name", name.key()});
  EXPECT_EQ(embed("Mars is red.", {"--prompt", name.value().get<std::string>()}), named);
  EXPECT_NE(named, embed("Mars is red.", {"--prompt", ""}));
}

TEST_F(Vectors, AreOfTheBeginOfALongText) {
  std::string text = "Mars is red";
  for (int i = 0; i < 60; ++i) text += " and dusty";
  const Outcome refused = run_ferry({"embed", made_, "--text", text});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--truncate cuts it"), std::string::npos) << refused.err;
  const auto cut = embed(text, {"--truncate"});
  EXPECT_EQ(embed(text + " and old", {"--truncate"}), cut);
  EXPECT_NE(embed("Is " + text, {"--truncate"}), cut);
  EXPECT_EQ(embed("Mars is red.", {"--truncate"}), all_);
}

TEST_F(Vectors, GoToAFileOfNumPy) {
  const std::string file = dir_ / "v.npy";
  const std::string lines = "Mars is red.\n\n\"Is it?\"\n";
  const std::vector<std::string> line = {"embed",          made_, "--plain", "-o", file,
                                         "--truncate-dim", "5",   "--json"};
  const Outcome made = run_ferry_on(lines, line);
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(schema_problems("embed.json", made.json()).empty());
  EXPECT_EQ(made.json()["result"]["texts"].size(), 3U);
  const std::string bytes = read_bytes(file);
  ASSERT_EQ(bytes.size(), 128U + 3 * 5 * sizeof(float));
  EXPECT_EQ(bytes.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(bytes.substr(10, 61), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5), }  ");
  EXPECT_EQ(bytes[127], '\n');
  for (size_t i = 0; i < 5; ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + 128 + i * sizeof value, sizeof value);
    EXPECT_NEAR(value, all_[i], 1e-7);
  }
  EXPECT_EQ(run_ferry_on(lines, line).code, 6);
  EXPECT_EQ(run_ferry({"embed", made_, "--text", "a", "-o", dir_ / "v.txt"}).code, 2);
  EXPECT_EQ(run_ferry({"embed", made_, "--text", "a", "-o", made_ + "/v.npy"}).code, 2);
  EXPECT_EQ(run_ferry_on("\xff\n", {"embed", made_, "--plain", "-o", dir_ / "w.npy"}).code, 3);
  EXPECT_FALSE(std::filesystem::exists(dir_ / "w.npy"));
}

TEST(Embed, PromptsOfAnotherKindAreRefused) {
  const TempDir dir;
  const std::string source = with_tokenizer(dir);
  for (const auto& [text, message] : {
           std::pair(R"({"prompts": ["a"]})", "'prompts' is not an object"),
           std::pair(R"({"default_prompt_name": 7})", "'default_prompt_name' is not a string"),
       }) {
    write_bytes(source + "/config_sentence_transformers.json", text);
    ASSERT_EQ(convert_encoder(source, dir / "b", {"--overwrite"}).code, 0);
    const Outcome outcome = run_ferry({"embed", dir / "b", "--text", "a"});
    EXPECT_EQ(outcome.code, 3);
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

TEST(Embed, ModulesThatAreNotSupportedAreRefusedByName) {
  const TempDir dir;
  const std::string source = with_tokenizer(dir);
  const auto change = [&](const std::string& file, const std::string& key, const Json& value) {
    const std::string before = read_bytes(source + "/" + file);
    Json document = Json::parse(before);
    document[key] = value;
    write_bytes(source + "/" + file, document.dump());
    const Outcome outcome = run_ferry({"convert", source, "-n"});
    write_bytes(source + "/" + file, before);
    return outcome;
  };
  const Outcome pooling = change("1_Pooling/config.json", "pooling_mode", "median");
  EXPECT_EQ(pooling.code, 4);
  EXPECT_NE(pooling.err.find("'pooling_mode' is no pooling that is known"), std::string::npos)
      << pooling.err;
  const Outcome unknown = change("sentence_bert_config.json", "model_args", {{"dtype", "f16"}});
  EXPECT_EQ(unknown.code, 4);
  EXPECT_NE(unknown.err.find("sentence_bert_config.json: 'model_args' is not supported"),
            std::string::npos)
      << unknown.err;
  const Outcome function =
      change("2_Dense/config.json", "activation_function", "torch.nn.modules.activation.Mish");
  EXPECT_EQ(function.code, 4);
  EXPECT_NE(function.err.find("2_Dense/config.json: 'activation_function'"), std::string::npos);
  const Outcome width = change("3_Dense/config.json", "in_features", 25);
  EXPECT_EQ(width.code, 3);
  EXPECT_NE(width.err.find("3_Dense/config.json: 'in_features' is 25"), std::string::npos);
  const Outcome lower = change("sentence_bert_config.json", "do_lower_case", true);
  EXPECT_EQ(lower.code, 4);
  std::filesystem::remove(source + "/2_Dense/model.safetensors");
  EXPECT_EQ(run_ferry({"convert", source, "-n"}).code, 3);
}

}  // namespace
}  // namespace ferry::verb_embed_test
