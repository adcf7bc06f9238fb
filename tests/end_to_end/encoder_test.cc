// Encoders, end to end. The reference is transformers' states with torch's modules after them.

#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "tests/cli/checkpoints.h"
#include "tests/cli/schema_check.h"

namespace ferry::encoder_test {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kFixtures = {
    "bert",       "deberta_v2",     "distilbert",         "embedding_gemma", "embedding_gemma2",
    "eurobert",   "gemma2_two_way", "jina_embeddings_v3", "llama_two_way",   "mistral_two_way",
    "modernbert", "mpnet",          "nomic_bert",         "qwen3_causal",    "roberta",
    "xlm_roberta"};

class Encoder : public testing::TestWithParam<std::string> {
 protected:
  void holds(std::vector<std::string> more) {
    const Outcome made = convert_encoder(encoder(GetParam()), dir_ / "b", more);
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string golden = encoder(GetParam()) + "/golden.safetensors";
    const Json against_reference = verify({"--reference", golden});
    const bool is_f32 = more.size() > 1 && more[1] == "f32";
    EXPECT_EQ(against_reference.contains("in_f32"), !is_f32);
    const Json whole = verify({"--checkpoint", encoder(GetParam()), "--reference", golden});
    EXPECT_TRUE(whole["f32_path"]["parity"].get<bool>());
    EXPECT_GE(whole["tensors"]["compared"].get<int>(), 20);
    EXPECT_EQ(whole["programs"]["different"], Json::array());
    EXPECT_EQ(whole.contains("own_weights"), !is_f32);
  }
  // Expects parity with every tensor of the reference compared.
  Json verify(const std::vector<std::string>& with) {
    std::vector<std::string> line = {"verify", dir_ / "b", "--json"};
    line.insert(line.end(), with.begin(), with.end());
    const Outcome verified = run_ferry(line);
    EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
    EXPECT_TRUE(schema_problems("verify.json", verified.json()).empty());
    Json result = verified.json()["result"];
    EXPECT_EQ(result["cases"].size(), 2U);
    for (const Json& prompt : result["cases"]) {
      EXPECT_TRUE(prompt["not_compared"].empty()) << prompt;
      EXPECT_FALSE(prompt["layers"].empty());
      EXPECT_TRUE(prompt["metrics"]["kl_mean"].is_null()) << prompt;
    }
    return result;
  }
  TempDir dir_;
};

TEST_P(Encoder, HasTheStatesOfTheReference) { holds({"--dtype", "f32"}); }
TEST_P(Encoder, HasThemInParts) { holds({"--dtype", "f32", "--shards", "2"}); }
TEST_P(Encoder, HasThemInBF16) { holds({"--dtype", "bf16"}); }
TEST_P(Encoder, HasThemInF16AndParts) { holds({"--dtype", "f16", "--shards", "2"}); }
TEST_P(Encoder, HasThemQuantised) { holds({"--quantize", "8da8w"}); }
TEST_P(Encoder, HasThemInInt8) { holds({"--quantize", "int8", "--quantize-embedding", "8"}); }

INSTANTIATE_TEST_SUITE_P(All, Encoder, testing::ValuesIn(kFixtures),
                         [](const auto& test) { return test.param; });

TEST(Encoders, AWrongStateIsNoParity) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("llama_two_way"), dir / "b", {"--dtype", "f32"}).code, 0);
  TensorFile golden(encoder("llama_two_way") + "/golden.safetensors");
  const auto begin = golden.header["long.last_hidden_state"]["data_offsets"][0].get<size_t>();
  const float wrong = 1.5F;
  golden.data.replace(begin + 400, sizeof wrong, reinterpret_cast<const char*>(&wrong),
                      sizeof wrong);
  golden.write(dir / "wrong.safetensors");
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", dir / "wrong.safetensors"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.err.find("the output (last_hidden_state)"), std::string::npos) << verified.err;
}

// transformers records the last hidden state under both names.
TEST(Encoders, TheLastOfTheHiddenStatesStandsForTheOutput) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("llama_two_way"), dir / "b", {"--dtype", "f32"}).code, 0);
  const auto verified = [&](const std::string& second) {
    TensorFile golden(encoder("llama_two_way") + "/golden.safetensors");
    golden.rename("long.last_hidden_state", second);
    golden.write(dir / "renamed.safetensors");
    return run_ferry({"verify", dir / "b", "--reference", dir / "renamed.safetensors", "--json"});
  };
  const Outcome last = verified("long.hidden_states.2");
  ASSERT_EQ(last.code, 0) << last.err;
  const Json first_case = last.json()["result"]["cases"][0];
  EXPECT_EQ(first_case["layers"][0]["name"], "last_hidden_state") << first_case;
  EXPECT_TRUE(first_case["not_compared"].empty()) << first_case;
  const Outcome other = verified("long.hidden_states.1");
  EXPECT_EQ(other.code, 3);
  EXPECT_NE(other.err.find("has no last_hidden_state"), std::string::npos) << other.err;
}

// Logits depend on the weights that prompts use. This change is of a token that no prompt has, and
// is found in the weights.
TEST(Encoders, AnotherCheckpointIsNamedByItsWeight) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("llama_two_way"), dir / "b", {"--dtype", "f32"}).code, 0);
  const std::string other = dir / "other";
  std::filesystem::copy(encoder("llama_two_way"), other);
  TensorFile tensors(other + "/model.safetensors");
  std::string bytes = tensors.bytes_of("model.embed_tokens.weight");
  bytes[2] = static_cast<char>(bytes[2] ^ 1);
  tensors.set_bytes("model.embed_tokens.weight", bytes);
  tensors.write(other + "/model.safetensors");
  const Outcome verified = run_ferry({"verify", dir / "b", "--checkpoint", other});
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.err.find("1 of 20 weights are not those of the checkpoint"), std::string::npos)
      << verified.err;
}

// Another window width changes no weight.
TEST(Encoders, AnotherConfigIsNamedByItsProgram) {
  const TempDir dir;
  ASSERT_EQ(convert_encoder(encoder("mistral_two_way"), dir / "b", {}).code, 0);
  Json config = Json::parse(read_bytes(encoder("mistral_two_way") + "/config.json"));
  config["sliding_window"] = config["sliding_window"].get<int>() + 1;
  write_bytes(dir / "config.json", config.dump());
  const Outcome verified = run_ferry({"verify", dir / "b", "--checkpoint",
                                      encoder("mistral_two_way"), "--config", dir / "config.json"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_NE(verified.err.find("makes another program of the checkpoint"), std::string::npos)
      << verified.err;
}

TEST(Encoders, ProofsAreReportedAndSigned) {
  const TempDir dir;
  const std::string source = encoder("mistral_two_way"), made = dir / "b";
  ASSERT_EQ(convert_encoder(source, made, {"--dtype", "bf16"}).code, 0);
  const std::string golden = source + "/golden.safetensors", key = dir / "key.pem";
  write_bytes(key, read_bytes(fixture("signing_keys/p256.pem")));
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  const Outcome verified =
      run_ferry_once({"verify", made, "--checkpoint", source, "--reference", golden, "--report",
                      dir / "r.json", "--attest", dir / "a.json", "--key", key});
  ASSERT_EQ(verified.code, 0) << verified.err;
  const Json report = Json::parse(read_bytes(dir / "r.json"));
  ASSERT_EQ(report["comparisons"].size(), 5U);
  for (const Json& comparison : report["comparisons"]) {
    EXPECT_EQ(comparison["output"], "sentence_embedding");
    EXPECT_FALSE(comparison["prompts"][0]["heat_map"].empty());
    if (comparison["metrics"]["max_abs"] == 0) continue;  // equal to the bit
    EXPECT_FALSE(comparison["prompts"][0]["histogram"]["decades"].empty());
    EXPECT_TRUE(comparison["metrics"]["top1_agreement"].is_null());
  }
  const Outcome checked = run_ferry({"check", made, "--attestation", dir / "a.json", "--public-key",
                                     fixture("signing_keys/p256.pub.pem"), "--json"});
  EXPECT_EQ(checked.code, 0) << checked.err;
  const std::string claim = checked.json()["result"]["attestation"]["claim"];
  EXPECT_NE(claim.find("after bf16: SQNR"), std::string::npos) << claim;
  ASSERT_EQ(convert_encoder(source, dir / "f", {"--dtype", "f32"}).code, 0);
  EXPECT_EQ(run_ferry({"verify", made, "--against", dir / "f", "--report", dir / "r.md"}).code, 0);
  EXPECT_EQ(run_ferry({"check", dir / "f", "--attestation", dir / "a.json", "--public-key",
                       fixture("signing_keys/p256.pub.pem")})
                .code,
            1);
}

struct Refusal {
  std::vector<std::string> line;
  int code;
  std::string said;
};

TEST(Encoders, WhatTheyCannotDoIsRefused) {
  const TempDir dir;
  const std::string source = encoder("llama_two_way");
  ASSERT_EQ(convert_encoder(source, dir / "b", {}).code, 0);
  ASSERT_EQ(convert_encoder(fixture("golden/llama"), dir / "d", {}).code, 0);
  const std::string made = dir / "b";
  write_bytes(dir / "ids", "1,2,3\n");
  const std::vector<Refusal> refusals = {
      {{"convert", source, "-n", "--program", "stateful"}, 4, "which encoders alone do"},
      {{"convert", source, "-n", "--program", "static"}, 4, "which encoders alone do"},
      {{"convert", source, "-n", "--prefill-length", "7"}, 2, "--prefill-length: an encoder"},
      {{"convert", source, "-n", "--kv-dtype", "f16"}, 2, "--kv-dtype: an encoder"},
      {{"convert", source, "--to", "gguf", "-o", dir / "g"}, 4, "is built as an encoder"},
      {{"convert", made, "--to", "hf", "-o", dir / "h"}, 4, "only bundles of decoders"},
      {{"convert", fixture("golden/lfm2"), "-n", "--program", "encoder"}, 4, "without attention"},
      {{"run", made, "--tokens", "1,2"}, 4, "which give states of texts"},
      {{"verify", made, "--checkpoint", source, "--mode", "kv"}, 2, "is for static programs"},
      {{"verify", made, "--perplexity", dir / "ids"}, 4, "and no logits"},
      {{"embed", made, "--tokens", "1,2"}, 2, "give --states"},
      {{"embed", made, "--tokens", "64", "--states"}, 2, "outside of the vocabulary"},
      {{"embed", dir / "d", "--tokens", "1", "--states"}, 4, "which give logits"}};
  for (const Refusal& refusal : refusals) {
    const Outcome outcome = run_ferry(refusal.line);
    EXPECT_EQ(outcome.code, refusal.code) << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.said), std::string::npos) << outcome.err;
  }
}

// The vectors of a causal model are made only on request.
TEST(Encoders, AFolderOfSentenceTransformersIsPointedOut) {
  const Outcome decoder = run_ferry({"convert", encoder("qwen3_causal"), "-n"});
  EXPECT_EQ(decoder.code, 0) << decoder.err;
  EXPECT_NE(decoder.err.find("a program of style encoder gives its vectors"), std::string::npos)
      << decoder.err;
}

}  // namespace
}  // namespace ferry::encoder_test
