// The tokenizer keys of a GGUF file, compared with those that llama.cpp's converter wrote.

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>

#include "core/sha256.h"
#include "dialects/gguf/tokenizer/pre_tokenizers.h"
#include "dialects/gguf/tokenizer/tokenizer_keys.h"
#include "dialects/gguf/tokenizer/vocabulary.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::text::gguf_tokenizer_test {
namespace {

using nlohmann::json;

std::string in_testdata(const std::string& name) {
  return std::string(FERRY_TESTDATA) + "/" + name;
}

std::string slurp(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

json cases() { return json::parse(slurp(in_testdata("gguf_tokenizer/converter.json"))); }

void append_bits(std::string& bytes, uint32_t bits) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 0xFF);
}

json digest(size_t count, const std::string& bytes) {
  return {{"count", count}, {"sha256", to_hex(sha256(std::as_bytes(std::span(bytes))))}};
}

// Gives a value in the form of converter.json, which has digests in place of lists.
struct Describe {
  template <class T>
  json operator()(const T& value) const {
    return value;
  }
  json operator()(const std::vector<std::string>& values) const {
    std::string bytes;
    for (const std::string& value : values) bytes += value + '\0';
    return digest(values.size(), bytes);
  }
  json operator()(const std::vector<int32_t>& values) const {
    std::string bytes;
    for (const int32_t value : values) append_bits(bytes, std::bit_cast<uint32_t>(value));
    return digest(values.size(), bytes);
  }
  json operator()(const std::vector<float>& values) const {
    std::string bytes;
    for (const float value : values) append_bits(bytes, std::bit_cast<uint32_t>(value));
    return digest(values.size(), bytes);
  }
  json operator()(const GgufStoredValue&) const { return "stored"; }
};

json described(const std::vector<GgufKeyValue>& keys) {
  json out = json::array();
  for (const GgufKeyValue& item : keys) {
    out.push_back({item.key, std::visit(Describe(), item.value)});
  }
  return out;
}

// Reads the files of testdata/FOLDER, with `files` over them. An empty text means that there is no
// file.
ReadFile with_files(const std::string& folder, std::map<std::string, std::string> files) {
  return [below = files_in(in_testdata(folder)), files = std::move(files)](
             const std::string& name, uint64_t limit) -> Result<std::string> {
    const auto at = files.find(name);
    if (at != files.end()) return at->second;
    return below(name, limit);
  };
}

GgufTokenizerOptions options_of(const json& at) {
  GgufTokenizerOptions options;
  options.architecture = at.at("architecture").get<std::string>();
  options.vocab_size = at.at("vocab_size").get<int64_t>();
  options.pre = at.at("pre").get<std::string>();
  return options;
}

std::map<std::string, std::string> extra_files(const json& at) {
  std::map<std::string, std::string> files;
  if (!at.contains("tokenizer_config")) return files;
  files["config.json"] = at.at("config").dump();
  files["tokenizer_config.json"] = at.at("tokenizer_config").dump();
  return files;
}

TEST(GgufTokenizer, KeysEqualThoseOfTheConverter) {
  for (const json& at : cases()) {
    SCOPED_TRACE(at.at("folder").get<std::string>() + " " +
                 at.at("architecture").get<std::string>());
    const ReadFile read = with_files(at.at("folder").get<std::string>(), extra_files(at));
    const auto made = gguf_tokenizer_keys(read, options_of(at));
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(described(made->keys), at.at("keys"));
  }
}

TEST(GgufTokenizer, EncodesTheProbeAsTheReference) {
  int compared = 0;
  for (const json& at : cases()) {
    const std::string digest = at.at("digest").get<std::string>();
    if (digest.empty()) continue;
    auto tokenizer =
        Tokenizer::load(in_testdata(at.at("folder").get<std::string>() + "/tokenizer.json"));
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto ours = gguf_pre_tokenizer_digest(*tokenizer);
    ASSERT_TRUE(ours) << ours.error().message;
    EXPECT_EQ(*ours, digest);
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

TEST(GgufTokenizer, NamesAreFoundByTheWholeDigest) {
  const std::string llama3 = "0ef9807a4087ebef797fc749390439009c3b9eda9ad1a097abbe738f486c01e5";
  EXPECT_EQ(gguf_pre_tokenizer_of(llama3), "llama-bpe");
  EXPECT_EQ(gguf_pre_tokenizer_of(llama3.substr(0, 63) + "6"), std::nullopt);
  EXPECT_EQ(gguf_pre_tokenizer_of(llama3.substr(0, 16)), std::nullopt);
  EXPECT_TRUE(is_gguf_pre_tokenizer("qwen35"));
  EXPECT_FALSE(is_gguf_pre_tokenizer("qwen99"));
}

void expect_refused(const ReadFile& read, const GgufTokenizerOptions& options, ErrorCode code,
                    const std::string& part) {
  const auto made = gguf_tokenizer_keys(read, options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, code);
  EXPECT_NE(made.error().message.find(part), std::string::npos) << made.error().message;
}

TEST(GgufTokenizer, RefusesByName) {
  GgufTokenizerOptions options;
  options.architecture = "llama";
  options.vocab_size = 4096;
  const ReadFile llama3 = files_in(in_testdata("tokenizer/llama3"));
  // The pre-tokenizer is never guessed by the architecture.
  expect_refused(llama3, options, ErrorCode::kUnsupported, "no name for this pre-tokenizer");
  options.pre = "no-such";
  expect_refused(llama3, options, ErrorCode::kUsage, "GGUF has no pre-tokenizer 'no-such'");
  options.pre = "llama-bpe";
  options.vocab_size = 20;
  expect_refused(llama3, options, ErrorCode::kUnsupported, "but vocab_size is 20");
  options.vocab_size = 4096;
  options.architecture = "gemma3";
  expect_refused(files_in(in_testdata("tokenizer/gemma")), options, ErrorCode::kUnsupported,
                 "needs tokenizer.model");
  // A tokenizer without a pre-tokenizer takes no name of one.
  options.architecture = "llama";
  expect_refused(files_in(in_testdata("gguf_tokenizer/sentence_piece")), options, ErrorCode::kUsage,
                 "tokenizer_pre: the checkpoint");
}

// The converter silently ignores settings of other kinds.
TEST(GgufTokenizer, RefusesSettingsOfOtherKinds) {
  GgufTokenizerOptions options;
  options.architecture = "llama";
  options.vocab_size = 4096;
  options.pre = "llama-bpe";
  for (const auto& [config, message] : {
           std::pair(R"({"add_bos_token": 1})", "'add_bos_token' is not true or false"),
           std::pair(R"({"eos_token": ["</s>"]})", "'eos_token' is not a token"),
           std::pair(R"({"additional_special_tokens": "<x>"})",
                     "'additional_special_tokens' is not a list"),
           std::pair(R"({"chat_template": 7})", "'chat_template' is not a template"),
           std::pair("[]", "not an object"),
       }) {
    expect_refused(with_files("tokenizer/llama3", {{"tokenizer_config.json", config}}), options,
                   ErrorCode::kBadInput, std::string("tokenizer_config.json: ") + message);
  }
}

// The merges of this tokenizer are not written, but its damage is found.
TEST(GgufTokenizer, RefusesADamagedTokenizer) {
  json document = json::parse(slurp(in_testdata("tokenizer/llama2/tokenizer.json")));
  document["added_tokens"][1]["special"] = "true";
  GgufTokenizerOptions options;
  options.architecture = "llama";
  options.vocab_size = 4096;
  expect_refused(with_files("tokenizer/llama2", {{"tokenizer.json", document.dump()}}), options,
                 ErrorCode::kBadInput, "added_tokens[1]: 'special' is not true or false");
}

// GLM-4.5 texts begin with [gMASK]. The converter finds its special tokens by their text.
TEST(GgufTokenizer, Glm4MoeNamesItsTokens) {
  json document = json::parse(slurp(in_testdata("tokenizer/qwen/tokenizer.json")));
  int id = 708;
  for (const char* token : {"[gMASK]", "<sop>", "<|user|>", "<|observation|>"}) {
    json added = document["added_tokens"].front();
    added["id"] = id++;
    added["content"] = token;
    document["added_tokens"].push_back(added);
  }
  GgufTokenizerOptions options;
  options.architecture = "glm4moe";
  options.vocab_size = 720;
  options.pre = "glm4";
  const auto made = gguf_tokenizer_keys(
      with_files("tokenizer/qwen", {{"tokenizer.json", document.dump()}}), options);
  ASSERT_TRUE(made) << made.error().message;
  std::map<std::string, json> keys;
  for (const json& item : described(made->keys)) keys[item[0].get<std::string>()] = item[1];
  EXPECT_EQ(keys["tokenizer.ggml.bos_token_id"], 708);
  EXPECT_EQ(keys["tokenizer.ggml.eot_token_id"], 710);
  EXPECT_EQ(keys["tokenizer.ggml.unknown_token_id"], 700);
  EXPECT_EQ(keys["tokenizer.ggml.eom_token_id"], 711);
  expect_refused(files_in(in_testdata("tokenizer/qwen")), options, ErrorCode::kUnsupported,
                 "has no [gMASK]");
}

TEST(GgufTokenizer, WithoutATokenizerThereIsNone) {
  GgufTokenizerOptions options;
  options.architecture = "llama";
  options.vocab_size = 10;
  const auto made = gguf_tokenizer_keys(files_in(in_testdata("llama3_tied")), options);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(described(made->keys), json::parse(R"([["tokenizer.ggml.model", "none"]])"));
  EXPECT_EQ(made->notes.size(), 1u);
}

TEST(SentencePieces, AreCheckedByteByByte) {
  const std::string model = slurp(in_testdata("gguf_tokenizer/sentence_piece/tokenizer.model"));
  const auto pieces = read_sentence_pieces(model, "m");
  ASSERT_TRUE(pieces) << pieces.error().message;
  EXPECT_EQ(pieces->size(), 340u);
  EXPECT_EQ(pieces->at(0).type, SentencePiece::kUnknown);
  size_t refused = 0;
  for (size_t size = 0; size < model.size(); ++size) {
    const auto part = read_sentence_pieces(model.substr(0, size), "m");
    refused += part ? 0 : 1;
    if (part) {
      EXPECT_LE(part->size(), 340u);
    }
  }
  EXPECT_GT(refused, model.size() / 2);  // a file that is cut between two fields is a whole message
  EXPECT_FALSE(read_sentence_pieces("not a model", "m"));
}

}  // namespace
}  // namespace ferry::text::gguf_tokenizer_test
