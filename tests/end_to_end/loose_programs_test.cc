// `run` with programs that have no bundle: those of the official exporter, and ours.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "tests/cli/checkpoints.h"
#include "tests/cli/ferry_process.h"

namespace ferry::loose_programs_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

const char kDecoder[] = "decoder-00001-of-00001";
const char kKv8[] = "static_llama/llama_kv8.pte";

void convert(const std::string& name, const std::string& bundle, const Line& options = {}) {
  Line line = {"convert", fixture(name), "-o", bundle};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

Line with(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

template <class T>
std::vector<T> values_of(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::string joined(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

std::string prompt_of(const std::string& name) {
  const TensorFile golden(fixture(name + "/golden.safetensors"));
  return joined(values_of<int64_t>(golden.bytes_of("short.input_ids")));
}

std::string program(const std::string& bundle) { return bundle + "/" + kDecoder + ".pte"; }

// Returns the logits that each token was chosen from, one row after the other.
std::vector<float> logits(const Line& line, const std::string& dump) {
  const Outcome outcome = run_ferry_once(with(line, {"--dump-logits", dump}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return values_of<float>(TensorFile(dump).bytes_of("logits"));
}

Json tokens(const Line& line) {
  const Outcome outcome = run_ferry(with(line, {"--max-new", "16", "--json"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json()["result"]["tokens"];
}

// The official model computed the prompt in two calls. The second call has 5 tokens and padding.
TEST(LooseProgramFiles, OfficialStaticProgramGivesTheLogitsOfTheOfficialModel) {
  const TensorFile trace(fixture("static_llama/llama_kv8.safetensors"));
  const TempDir dir;
  std::vector<int64_t> prompt;
  for (const char* call : {"call0.in00.tokens", "call1.in00.tokens"}) {
    for (const int32_t id : values_of<int32_t>(trace.bytes_of(call))) prompt.push_back(id);
  }
  prompt.resize(13);
  const auto codes = values_of<uint16_t>(trace.bytes_of("call1.out00.logits"));
  constexpr size_t kVocab = 320, kRow = 4;
  constexpr double kScale = 0.00016084119348983665;
  const Line run = {"run", "--text-decoder", fixture(kKv8), "--tokens", joined(prompt)};
  const std::vector<float> row = logits(with(run, {"--max-new", "1"}), dir / "dump");
  ASSERT_EQ(row.size(), kVocab);
  for (size_t i = 0; i < kVocab; ++i) {
    EXPECT_NEAR(row[i], (codes[kRow * kVocab + i] - 33922) * kScale, 1.01 * kScale) << i;
  }
  EXPECT_EQ(tokens(with(run, {"--mode", "kv"})), tokens(run));
}

TEST(LooseProgramFiles, OfficialStatefulProgramsGiveTheLogitsOfTheOfficialRuntime) {
  for (const auto& [name, prompt] :
       {std::pair<std::string, std::string>("llama_tiny_ext", "60,33,115"),
        {"qwen35_dyn", "37,107,12"}}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string path = fixture("official_pte/" + name);
    const std::vector<float> row = logits({"run", "--text-decoder", path + ".pte", "--tokens",
                                           prompt, "--max-new", "1", "--ignore-eos"},
                                          dir / "dump");
    const auto want = values_of<float>(read_bytes(path + ".ref0_0.bin"));
    ASSERT_EQ(row.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(row[i], want[i], 1e-5) << i;
  }
}

TEST(LooseProgramFiles, ProgramsOfABundleGiveItsTokensWithoutIt) {
  const Line fixed = {"--program", "static", "--context-length", "64", "--prefill-length", "8"};
  const Line codes = {"--kv-dtype", "u8", "--mask-dtype", "u16", "--logits-dtype", "u16"};
  struct Case {
    std::string name;
    Line options;
    std::vector<std::string> modes;
  };
  const Case cases[] = {
      {"llama3_tied", {}, {""}},
      {"qwen3_5_text", {"--dtype", "bf16"}, {""}},
      {"llama3_tied", with(fixed, {"--decode-length", "8"}), {"kv", "hybrid", "lookahead"}},
      {"llama3_tied", with(fixed, codes), {"kv", "hybrid"}},
      {"qwen3_5_text", fixed, {"kv", "hybrid"}},  // recurrent states after the caches
  };
  for (const Case& test : cases) {
    const TempDir dir;
    convert(test.name, dir / "b", test.options);
    for (const std::string& mode : test.modes) {
      SCOPED_TRACE(test.name + " " + mode);
      Line rest = {"--tokens", prompt_of(test.name)};
      if (!mode.empty()) rest = with(rest, {"--mode", mode});
      const Json want = tokens(with({"run", dir / "b"}, rest));
      EXPECT_EQ(tokens(with({"run", "--text-decoder", program(dir / "b")}, rest)), want);
    }
  }
}

// Sequences of more than 24 tokens use the second set of factors from their first token on.
TEST(LooseProgramFiles, ProgramsStateWhereTheirRopeFactorsChange) {
  const TempDir dir;
  convert("golden/phi4_mini", dir / "b", {"--dtype", "f32", "--prefill-length", "7"});
  for (const int64_t length : {20, 30}) {
    std::vector<int64_t> prompt;
    for (int64_t i = 0; i < length; ++i) prompt.push_back(3 + i * 7 % 90);
    const Line rest = {"--tokens", joined(prompt), "--max-new", "8", "--ignore-eos"};
    EXPECT_EQ(logits(with({"run", "--text-decoder", program(dir / "b")}, rest), dir / "loose"),
              logits(with({"run", dir / "b"}, rest), dir / "bundle"));
    std::filesystem::remove(dir / "loose");
    std::filesystem::remove(dir / "bundle");
  }
}

class LooseVision : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string dtype : {"f32", "bf16"}) {
      convert("vision/smolvlm", dir / dtype, {"--dtype", dtype});
    }
  }
  Line mixed(const std::string& embedding, const std::string& decoder) const {
    return {"run",
            "--vision-encoder",
            dir / embedding + "/vision_encoder.pte",
            "--token-embedding",
            dir / embedding + "/token_embedding.pte",
            "--text-decoder",
            program(dir / decoder),
            "--tokens",
            "1,175,251,37,19,87",
            "--max-new",
            "4"};
  }
  const TempDir dir;
};

TEST_F(LooseVision, ComponentsRunEachWithItsOwnPrecision) {
  std::map<std::string, std::vector<float>> rows;
  for (const std::string embedding : {"f32", "bf16"}) {
    for (const std::string decoder : {"f32", "bf16"}) {
      const std::string name = embedding + decoder;
      rows[name] = logits(mixed(embedding, decoder), dir / name + ".dump");
    }
    const Line bundle = {"run", dir / embedding, "--tokens", "1,175,251,37,19,87", "--max-new",
                         "4"};
    EXPECT_EQ(rows[embedding + embedding], logits(bundle, dir / embedding + ".dump"));
  }
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_NE(rows["f32bf16"], rows["bf16bf16"]);
  EXPECT_NE(rows["f32bf16"], rows["f32f32"]);
  EXPECT_NE(rows["bf16f32"], rows["f32f32"]);
  for (const auto& [name, row] : rows) {
    ASSERT_EQ(row.size(), rows["f32f32"].size());
    for (size_t i = 0; i < 360; ++i) EXPECT_NEAR(row[i], rows["f32f32"][i], 0.1) << name;
  }
}

TEST_F(LooseVision, StaticComponentsGiveTheTokensOfTheirBundle) {
  convert(
      "vision/smolvlm", dir / "b",
      {"--dtype", "f32", "--program", "static", "--context-length", "64", "--prefill-length", "4"});
  const Line rest = {"--tokens", "1,175,251,37,19,87"};
  const std::string embedding = dir / "b/token_embedding.pte";
  const Line loose = {"run", "--text-decoder", program(dir / "b"), "--token-embedding"};
  EXPECT_EQ(tokens(with(with(loose, {embedding}), rest)), tokens(with({"run", dir / "b"}, rest)));
  const std::string stateful = dir / "f32/token_embedding.pte";
  const Outcome mixed = run_ferry(with(with(loose, {stateful}), rest));
  EXPECT_EQ(mixed.code, 4);
  EXPECT_EQ(mixed.err, "ferry: error: " + stateful +
                           ": has no method tok_embedding_kv_forward, which the token embedding "
                           "for method 'kv_forward' of " +
                           program(dir / "b") + " has\n");
}

TEST_F(LooseVision, ImagesGoThroughTheProcessorOfTheDirectory) {
  const std::string source = vision_checkpoint(dir, "smolvlm");
  ASSERT_EQ(run_ferry({"convert", source, "-o", dir / "b", "--dtype", "f32"}).code, 0);
  const Line rest = {"--image", fixture("vision/prompts/photo_444.jpg"), "--prompt",
                     "What is this?"};
  Line loose = mixed("f32", "f32");
  loose.resize(7);  // the line without its prompt
  const Line with_directory = with(loose, {"--tokenizer", source});
  EXPECT_EQ(tokens(with(with_directory, rest)), tokens(with({"run", dir / "b"}, rest)));
}

TEST_F(LooseVision, ComponentsThatDoNotFitAreRefused) {
  const std::string embedding = dir / "f32/token_embedding.pte";
  const std::string decoder = program(dir / "f32");
  convert("llama3_tied", dir / "text");
  const std::string text = program(dir / "text");
  const Line rest = {"--tokens", "1"};
  const struct {
    Line line;
    int code;
    std::string message;
  } cases[] = {
      {{"--text-decoder", decoder},
       2,
       decoder + ": takes embeddings: --token-embedding is required"},
      {{"--text-decoder", text, "--token-embedding", embedding},
       2,
       text + ": takes tokens, not embeddings: --token-embedding does not fit"},
      {{"--text-decoder", fixture(kKv8), "--vision-encoder", embedding},
       2,
       fixture(kKv8) + ": takes tokens, not embeddings: --vision-encoder does not fit"},
      {{"--text-decoder", decoder, "--token-embedding", decoder},
       4,
       decoder + ": method 'forward': input 0 is f32 [1, 256, 64]; expected tokens i64 [1, T]"},
      {{"--text-decoder", embedding},
       3,
       embedding + ": has neither a method get_max_context_len nor a method get_max_seq_len: "
                   "nothing states how long a sequence may be"},
  };
  for (const auto& test : cases) {
    const Outcome outcome = run_ferry(with(with({"run"}, test.line), rest));
    EXPECT_EQ(outcome.code, test.code) << outcome.err;
    EXPECT_EQ(outcome.err, "ferry: error: " + test.message + "\n");
  }
}

TEST(LooseProgramFiles, WhatEndsAnAnswerIsStatedOrRefused) {
  const TempDir dir;
  const std::string path = fixture("official_pte/llama_tiny_ext.pte");
  const Line line = {"run", "--text-decoder", path, "--tokens", "37,107,12", "--json"};
  const Outcome refused = run_ferry(line);
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.json()["error"]["message"],
            path +
                ": neither the program nor --tokenizer says which tokens end an answer: use "
                "--ignore-eos");
  const Json all =
      run_ferry(with(line, {"--ignore-eos", "--max-new", "4"})).json()["result"]["tokens"];
  ASSERT_EQ(all.size(), 4u);
  const std::string config = dir / "generation_config.json";
  write_bytes(config, R"({"eos_token_id": [5, )" + all[2].dump() + "]}");
  const Json stopped = run_ferry(with(line, {"--tokenizer", dir.path()})).json()["result"];
  EXPECT_EQ(stopped["stop"], "eos");
  EXPECT_EQ(stopped["tokens"].size(), 3u);
  for (const auto& [text, message] :
       {std::pair{R"({"eos_token_id": "5"})",
                  config + ": eos_token_id is neither a token id nor a list of them"},
        std::pair{R"({"eos_token_id": 128})",
                  path + ": token 128 ends an answer (by its tokenizer or get_eos_id), but "
                         "there are 128 tokens"}}) {
    write_bytes(config, text);
    const Outcome bad = run_ferry(with(line, {"--tokenizer", dir.path()}));
    EXPECT_EQ(bad.code, 3);
    EXPECT_EQ(bad.json()["error"]["message"], message);
  }
}

TEST(LooseProgramFiles, TextGoesThroughTheTokenizerOfTheDirectory) {
  const TempDir dir;
  Json file = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  file["added_tokens"] = Json::array();  // added tokens are beyond the model's vocabulary
  file.erase("post_processor");
  convert("llama3_tied", dir / "b");
  std::filesystem::create_directory(dir / "t");
  write_bytes(dir / "t/tokenizer.json", file.dump());
  const Line line = {
      "run", "--text-decoder", program(dir / "b"), "--tokenizer", dir / "t", "--max-new",
      "4",   "--json",         "--prompt",         "He"};
  const Outcome outcome = run_ferry(line);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.json()["result"]["text"].is_string());
  EXPECT_EQ(outcome.json()["result"]["tokens"].size(), 4u);
}

TEST(LooseProgramFiles, DataFilesAreFoundOrRefused) {
  namespace fs = std::filesystem;
  const TempDir dir;
  const std::string pte = dir / "a.pte", ptd = dir / "weights.ptd", copy = dir / "copy.ptd";
  fs::copy(fixture("official_pte/llama_tiny_ext.pte"), pte);
  fs::copy(fixture("official_pte/llama_tiny_ext.ptd"), ptd);
  fs::copy(ptd, copy);
  const Line line = {"run", "--text-decoder", pte, "--tokens", "1", "--ignore-eos"};
  const auto refusal = [&](const Line& more, int code) {
    const Outcome outcome = run_ferry(with(line, more));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return outcome.err;
  };
  EXPECT_EQ(run_ferry(with(line, {"--data", ptd})).code, 0);
  EXPECT_NE(refusal({}, 3).find(pte + ": tensor '"), std::string::npos);
  EXPECT_NE(refusal({}, 3).find("is in no data file (there is none of the same name beside the "
                                "program); give --data FILE"),
            std::string::npos);
  EXPECT_NE(refusal({"--data", ptd, "--data", copy}, 3).find("is in " + ptd + " and in " + copy),
            std::string::npos);
  const std::string other = fixture("official_pte/linear_ext.ptd");
  EXPECT_EQ(refusal({"--data", ptd, "--data", other}, 2),
            "ferry: error: --data " + other + ": no program has a tensor of it\n");
  EXPECT_EQ(refusal({"--data", ptd, "--data", ptd}, 2), "ferry: error: " + ptd + ": given twice\n");
}

TEST(LooseProgramFiles, PartsOfAModelAreRefused) {
  for (const std::string style : {"stateful", "static"}) {
    const TempDir dir;
    convert("llama3_tied", dir / "b", {"--shards", "2", "--program", style});
    for (const std::string part : {"1", "2"}) {
      SCOPED_TRACE(style + " " + part);
      const std::string base = dir / "b/decoder-0000";
      Line line = {"run", "--text-decoder", base + part + "-of-00002.pte", "--tokens", "1"};
      if (part == "2") line = with(line, {"--data", base + "1-of-00002.ptd"});
      const Outcome outcome = run_ferry(line);
      EXPECT_TRUE(outcome.code == 2 || outcome.code == 3 || outcome.code == 4) << outcome.err;
    }
  }
}

TEST(LooseProgramFiles, OptionsThatContradictAreRefused) {
  const std::string pte = fixture(kKv8);
  const struct {
    Line line;
    std::string message;
  } cases[] = {
      {{"run", "--tokens", "1"}, "BUNDLE or --text-decoder is required"},
      {{"run", "--tokens", "1", "--token-embedding", pte}, "--text-decoder is required"},
      {{"run", "b", "--tokens", "1", "--text-decoder", pte},
       "b: a bundle has its programs and its tokenizer; --vision-encoder, --token-embedding, "
       "--text-decoder, --data and --tokenizer are for programs without a bundle"},
      {{"run", "--tokens", "1", "--text-decoder", pte, "--skip-digests"},
       "--skip-digests is for bundles; programs without one have no digests"},
      {{"run", "--prompt", "x", "--text-decoder", pte},
       pte + ": a prompt of text needs --tokenizer"},
  };
  for (const auto& [line, message] : cases) {
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "ferry: error: " + message + "\n");
  }
}

}  // namespace
}  // namespace ferry::loose_programs_test
