// `convert` checks the reference and the tokenizer before it makes a bundle with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "tests/cli/ferry_process.h"

namespace ferry::convert_companions_test {
namespace {

using Json = nlohmann::json;

struct BadReference {
  const char* what;
  void (*change)(TensorFile&);
  const char* message;
};

std::string golden_with(const TempDir& dir, void (*change)(TensorFile&)) {
  TensorFile file(fixture("llama3_tied/golden.safetensors"));
  change(file);
  file.write(dir / "reference.safetensors");
  return dir / "reference.safetensors";
}

void set_token(TensorFile& file, const std::string& tensor, int64_t id) {
  std::string bytes(sizeof id, '\0');
  std::memcpy(bytes.data(), &id, sizeof id);
  file.set_bytes(tensor, bytes);
}

const BadReference kBadReferences[] = {
    {"a token beyond the vocabulary", [](TensorFile& f) { set_token(f, "short.input_ids", 384); },
     "prompt 'short': token 384 is outside of the bundle's vocabulary of 384"},
    {"a negative token", [](TensorFile& f) { set_token(f, "short.input_ids", -1); },
     "prompt 'short': token -1 is outside"},
    {"a continuation beyond the vocabulary",
     [](TensorFile& f) { set_token(f, "short.greedy_ids", 100000); }, "token 100000 is outside"},
    {"logits of another vocabulary",
     [](TensorFile& f) {
       auto& shape = f.header["short.logits"]["shape"];
       shape[1] = shape[1].get<int64_t>() * 2;
       shape[2] = shape[2].get<int64_t>() / 2;
     },
     "shape [1, 48, 192] where [1, 24, 384] is expected (tensor 'short.logits')"},
    {"another hidden size",
     [](TensorFile& f) {
       auto& shape = f.header["short.hidden_states.1"]["shape"];
       shape[1] = shape[1].get<int64_t>() * 2;
       shape[2] = shape[2].get<int64_t>() / 2;
     },
     "where [1, 24, 64] is expected (tensor 'short.hidden_states.1')"},
    {"other heads",
     [](TensorFile& f) {
       auto& shape = f.header["short.cache.1.key"]["shape"];
       shape[1] = shape[1].get<int64_t>() * 2;
       shape[3] = shape[3].get<int64_t>() / 2;
     },
     "is expected (tensor 'short.cache.1.key')"},
    {"a NaN", [](TensorFile& f) { f.set_bytes("short.logits", std::string("\0\0\xc0\x7f", 4)); },
     "a value is not finite (tensor 'short.logits')"},
    {"no logits", [](TensorFile& f) { f.rename("short.logits", "short.other"); },
     "prompt 'short' has no logits"},
};

TEST(ConvertReference, OneOfAnotherModelIsRefused) {
  for (const BadReference& bad : kBadReferences) {
    SCOPED_TRACE(bad.what);
    const TempDir dir;
    const std::string reference = golden_with(dir, bad.change);
    const Outcome refused =
        run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b", "--reference", reference});
    EXPECT_EQ(refused.code, 3);
    EXPECT_EQ(refused.error_lines(), 1U);
    EXPECT_TRUE(refused.err.starts_with("ferry: error: " + reference + ": ")) << refused.err;
    EXPECT_NE(refused.err.find(bad.message), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(dir / "b"));
    // `verify` refuses the same reference after the conversion.
    ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
    EXPECT_NE(run_ferry({"verify", dir / "b", "--reference", reference}).code, 0);
  }
}

TEST(ConvertReference, OneThatTheContextIsTooShortForIsRefused) {
  const TempDir dir;
  const Outcome refused =
      run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b", "--context-length", "32",
                 "--reference", fixture("llama3_tied/golden.safetensors")});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.err.find("the bundle's context is 32"), std::string::npos) << refused.err;
}

// The golden reference of every model belongs to it.
TEST(ConvertReference, TheRightOneIsTaken) {
  for (const char* name : {"llama3_tied", "qwen3_5_text", "golden/gemma2", "golden/qwen3_moe"}) {
    if (!std::filesystem::exists(fixture(std::string(name) + "/golden.safetensors"))) continue;
    const Outcome planned = run_ferry({"convert", fixture(name), "--dry-run", "--reference",
                                       fixture(std::string(name) + "/golden.safetensors")});
    EXPECT_EQ(planned.code, 0) << planned.err;
  }
}

// Adds `tokenizer` to llama3_tied.
std::string with_tokenizer(const TempDir& dir, const std::string& tokenizer) {
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  write_bytes(source + "/tokenizer.json", tokenizer);
  return source;
}

void expect_note(const std::string& tokenizer, const std::string& part) {
  const TempDir dir;
  const std::string source = with_tokenizer(dir, tokenizer);
  const Outcome made = run_ferry({"convert", source, "-o", dir / "b", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(made.err.starts_with("ferry: " + source + "/tokenizer.json: ")) << made.err;
  EXPECT_NE(made.err.find(part), std::string::npos) << made.err;
  ASSERT_EQ(made.json()["notes"].size(), 1U);
  EXPECT_EQ("ferry: " + made.json()["notes"][0].get<std::string>() + "\n", made.err);
  EXPECT_EQ(read_bytes(dir / "b/tokenizer.json"), tokenizer);
}

TEST(ConvertTokenizer, WhatWillNotLoadIsNoted) {
  expect_note("not json", "the bundle will take tokens, but no text");
  expect_note(R"({"model": {"type": "Unigram", "vocab": 1}})", "vocab");
}

TEST(ConvertTokenizer, IdsBeyondTheModelAreNoted) {
  Json tokenizer = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  int64_t largest = 0;
  for (const Json& added : tokenizer["added_tokens"]) {
    largest = std::max(largest, added["id"].get<int64_t>());
  }
  ASSERT_GE(largest, 384);
  expect_note(tokenizer.dump(),
              "has ids up to " + std::to_string(largest) + ", the model's vocabulary ends at 383");
}

TEST(ConvertTokenizer, AFittingOneIsNotMentioned) {
  Json tokenizer = Json::parse(read_bytes(fixture("tokenizer/llama3/tokenizer.json")));
  tokenizer["added_tokens"] = Json::array();
  tokenizer["post_processor"] = nullptr;
  Json vocabulary = Json::object(), merges = Json::array();
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    if (id.get<int64_t>() < 256) vocabulary[token] = id;  // the tokens of bytes
  }
  tokenizer["model"]["vocab"] = vocabulary;
  tokenizer["model"]["merges"] = merges;
  const TempDir dir;
  const Outcome made =
      run_ferry({"convert", with_tokenizer(dir, tokenizer.dump()), "-o", dir / "b", "--json"});
  EXPECT_EQ(made.err, "");
  EXPECT_EQ(made.json()["notes"], Json::array());
}

}  // namespace
}  // namespace ferry::convert_companions_test
