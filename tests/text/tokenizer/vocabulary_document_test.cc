// Folders that hold only a vocabulary, and invalid ones. tokenizer_files_test.cc compares their
// tokenizers with those of the reference.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "tests/text/tokenizer/tokenizer_testing.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::text::vocabulary_document_test {
namespace {

using Ids = std::vector<int64_t>;

struct Folder {
  Result<Tokenizer> load() const {
    return load_tokenizer("d", [&](const std::string& name, uint64_t) -> Result<std::string> {
      const auto file = files.find(name);
      return file == files.end() ? std::string() : file->second;
    });
  }
  void expect_refused(ErrorCode code, const std::string& message) const {
    const auto tokenizer = load();
    ASSERT_FALSE(tokenizer) << message;
    EXPECT_EQ(tokenizer.error().code, code);
    EXPECT_NE(tokenizer.error().message.find(message), std::string::npos)
        << tokenizer.error().message;
    EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
  }
  Ids encode(const std::string& text) const {
    auto tokenizer = load();
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? *tokenizer->encode(text, /*add_special=*/false) : Ids{};
  }

  std::map<std::string, std::string> files;
};

Folder words() {
  return {{{"vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\n##c\nd\n"},
           {"tokenizer_config.json", R"({"tokenizer_class": "BertTokenizerFast"})"}}};
}

Folder pairs() {
  return {{{"vocab.json", R"({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "<|endoftext|>": 5})"},
           {"merges.txt", "#version: 0.2\na b\nab c\n"},
           {"config.json", R"({"model_type": "gpt2"})"}}};
}

TEST(VocabularyFiles, LinesEndInAnyManner) {
  Folder folder = words();
  const Ids expected = {5, 6, 7};
  EXPECT_EQ(folder.encode("ABC d"), expected);
  folder.files["vocab.txt"] = "[PAD]\r\n[UNK] \n[CLS]\n[SEP]\t\n[MASK]\nab\n##c\nd";
  EXPECT_EQ(folder.encode("abc D"), expected);
}

TEST(VocabularyFiles, TheLastOfTwoEqualLinesCounts) {
  Folder folder = words();
  folder.files["vocab.txt"] += "ab\n";
  EXPECT_EQ(folder.encode("abc"), (Ids{8, 6}));
}

TEST(VocabularyFiles, MergesAreRanks) {
  Folder folder = pairs();
  EXPECT_EQ(folder.encode("abcab<|endoftext|>"), (Ids{4, 3, 5}));
  folder.files["merges.txt"] = "a b\r\n#version: of another kind\n";
  EXPECT_EQ(folder.encode("abc"), (Ids{3, 2}));
}

TEST(VocabularyFiles, DoNotSayHowTextsAreSplit) {
  Folder folder = pairs();
  folder.files["config.json"] = R"({"model_type": "qwen2_audio"})";
  folder.expect_refused(ErrorCode::kUnsupported,
                        "d/vocab.json: a vocabulary alone, and neither tokenizer_class '' of "
                        "tokenizer_config.json nor model_type 'qwen2_audio'");
  folder.files["tokenizer_config.json"] = R"({"tokenizer_class": "BertTokenizer"})";
  folder.expect_refused(ErrorCode::kUnsupported, "tokenizer_class 'BertTokenizer'");
  Folder other = words();
  other.files["tokenizer_config.json"] = R"({"tokenizer_class": "GPT2Tokenizer"})";
  other.expect_refused(ErrorCode::kUnsupported, "tokenizer_class 'GPT2Tokenizer'");
}

TEST(VocabularyFiles, WordsAreMalformed) {
  Folder folder = words();
  folder.files["tokenizer_config.json"] =
      R"({"tokenizer_class": "BertTokenizer", "unk_token": "?"})";
  folder.expect_refused(ErrorCode::kBadInput, "d/vocab.txt: unk_token '?' is not there");
  folder = words();
  folder.files["vocab.txt"] += std::string(513, 'x') + "\n";
  folder.expect_refused(ErrorCode::kBadInput, "d/vocab.txt: line 9: more tokens or a longer one");
  folder = words();
  folder.files["vocab.txt"] += "\xff\n";
  folder.expect_refused(ErrorCode::kBadInput, "d/vocab.txt: a token is not UTF-8");
  folder = words();
  folder.files["tokenizer_config.json"] =
      R"({"tokenizer_class": "BertTokenizer", "do_lower_case": "yes"})";
  folder.expect_refused(ErrorCode::kBadInput, "do_lower_case is not true or false");
}

TEST(VocabularyFiles, PairsAreMalformed) {
  Folder folder = pairs();
  for (const char* line : {"a", "a b c", "a  b", "a x", "", " ab"}) {
    folder.files["merges.txt"] = "a b\n" + std::string(line) + "\nab c\n";
    folder.expect_refused(ErrorCode::kBadInput,
                          "d/merges.txt: line 2 is not two tokens of the vocabulary");
  }
  folder.files["merges.txt"] = "a b\nb a\n";
  folder.expect_refused(ErrorCode::kBadInput,
                        "d/merges.txt: line 2 makes 'ba', which is not in the vocabulary");
  folder = pairs();
  for (const char* vocab :
       {R"({"a": -1})", R"({"a": 4194304})", R"({"a": "b"})", R"({"a": 1.5})"}) {
    folder.files["vocab.json"] = vocab;
    folder.expect_refused(ErrorCode::kBadInput, "d/vocab.json: 'a' has no id");
  }
  folder.files["vocab.json"] = "[]";
  folder.expect_refused(ErrorCode::kBadInput, "not an object of tokens and their ids");
  folder = pairs();
  folder.files.erase("merges.txt");
  folder.expect_refused(ErrorCode::kUnsupported, "d/vocab.json: without merges.txt");
}

TEST(VocabularyFiles, AddedTokensHaveTheirIds) {
  Folder folder = pairs();
  folder.files["added_tokens.json"] = R"({"<x>": 6})";
  EXPECT_EQ(folder.encode("a<x>b"), (Ids{0, 6, 1}));
  folder.files["added_tokens.json"] = R"({"<x>": 8})";
  folder.expect_refused(ErrorCode::kBadInput,
                        "the added token '<x>' has the id 8 in added_tokens.json, expected 6");
}

}  // namespace
}  // namespace ferry::text::vocabulary_document_test
