// Folders without tokenizer.json: a SentencePiece model or tiktoken ranks with other files,
// compared with the results of the reference libraries for the same folders.

#include <algorithm>
#include <filesystem>

#include "tests/text/tokenizer/tokenizer_testing.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::text::tokenizer_files_test {
namespace {

using Ids = std::vector<int64_t>;

std::string folder_of(const std::string& name) {
  return std::string(FERRY_TESTDATA) + "/tokenizer/models/" + name;
}

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(""))) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

class ModelFiles : public testing::TestWithParam<std::string> {};

// A row has a text, its ids, and their decoded text where it is not the text.
TEST_P(ModelFiles, TokenizerDoesWhatTheReferenceDoes) {
  auto tokenizer = load_tokenizer(folder_of(GetParam()));
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto golden = nlohmann::json::parse(read_fixture("models/" + GetParam() + "/golden.json"));
  ASSERT_GE(golden["rows"].size(), 200U);
  for (const auto& row : golden["rows"]) {
    const std::string text = row[0];
    Ids ids = row[1];
    const auto plain = tokenizer->encode(text, /*add_special=*/false);
    ASSERT_TRUE(plain) << plain.error().message;
    EXPECT_EQ(*plain, ids) << text;
    const auto decoded = tokenizer->decode(ids, /*skip_special=*/false);
    ASSERT_TRUE(decoded);
    EXPECT_EQ(*decoded, row[2].is_null() ? text : row[2].get<std::string>()) << text;
    const Ids prefix = golden["prefix"], suffix = golden["suffix"];
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
    ids.insert(ids.end(), suffix.begin(), suffix.end());
    const auto special = tokenizer->encode(text, /*add_special=*/true);
    ASSERT_TRUE(special);
    EXPECT_EQ(*special, ids) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, ModelFiles, testing::ValuesIn(folders()),
                         [](const auto& test) { return test.param; });

// -- invalid folders

class Folder {
 public:
  explicit Folder(const std::string& name) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_of(name))) {
      const std::string file = entry.path().filename();
      files[file] = read_fixture("models/" + name + "/" + file);
    }
  }
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

  std::map<std::string, std::string> files;
};

TEST(ModelFiles, NothingIsThere) {
  Folder folder("llama_plain");
  folder.files.erase("tokenizer.model");
  folder.expect_refused(ErrorCode::kIo, "d: has no tokenizer.json, tokenizer.model");
}

TEST(ModelFiles, AskForWhatIsNotBuilt) {
  Folder folder("llama_plain");
  folder.files["tokenizer_config.json"] = R"({"tokenizer_class": "PegasusTokenizer"})";
  folder.expect_refused(ErrorCode::kUnsupported, "tokenizer_class 'PegasusTokenizer'");
  folder.files["tokenizer_config.json"] = R"({"tokenizer_class": "T5Tokenizer"})";
  folder.expect_refused(ErrorCode::kUnsupported, "T5Tokenizer with a model of the other kind");
  folder.files["tokenizer_config.json"] =
      R"({"tokenizer_class": "LlamaTokenizer", "additional_special_tokens": ["<x>"]})";
  folder.expect_refused(ErrorCode::kUnsupported, "'<x>' without an id");
}

TEST(ModelFiles, DoNotSayHowCharactersAreChanged) {
  Folder folder("xlmr");
  folder.files.erase("tokenizer_config.json");
  folder.expect_refused(ErrorCode::kUnsupported, "a Unigram model without a tokenizer_class");
}

TEST(ModelFiles, StateWrongIds) {
  Folder folder("llama_plain");
  folder.files["tokenizer_config.json"] = R"({"tokenizer_class": "LlamaTokenizer"})";
  folder.files["added_tokens.json"] = R"({"<x>": 4000})";
  folder.expect_refused(ErrorCode::kBadInput,
                        "'<x>' has the id 4000 in added_tokens.json, expected");
  folder.files["added_tokens.json"] = R"({"<x>": -1})";
  folder.expect_refused(ErrorCode::kBadInput, "'<x>' has no id");
  folder.files["added_tokens.json"] = R"(["<x>"])";
  folder.expect_refused(ErrorCode::kBadInput, "not an object");
  folder.files["tokenizer_config.json"] = R"({"add_bos_token": 1})";
  folder.expect_refused(ErrorCode::kBadInput, "add_bos_token is not true or false");
}

// A field of the wrong type is an error, not an absent field.
TEST(ModelFiles, StateFieldsOfOtherKinds) {
  Folder folder("llama_plain");
  const std::string config = "d/tokenizer_config.json: ";
  for (const auto& [text, message] : {
           std::pair(R"({"tokenizer_class": {"a": "LlamaTokenizer"}})",
                     "tokenizer_class is not a string"),
           std::pair(R"({"additional_special_tokens": "<x>"})",
                     "additional_special_tokens is not a list"),
           std::pair(R"({"added_tokens_decoder": {"1": {"content": "<s>"},
                                                  "01": {"content": "</s>"}}})",
                     "added_tokens_decoder: the id 1 is there twice"),
       }) {
    folder.files["tokenizer_config.json"] = text;
    folder.expect_refused(ErrorCode::kBadInput, config + message);
  }
  folder.files["tokenizer_config.json"] = R"({"bos_token": ")" + std::string(513, 'x') + R"("})";
  folder.expect_refused(ErrorCode::kBadInput, config + "bos_token: the token is too long");
  folder.files.erase("tokenizer_config.json");
  folder.files["config.json"] = R"({"model_type": ["llama"]})";
  folder.expect_refused(ErrorCode::kBadInput, "d/config.json: model_type is not a string");
}

TEST(ModelFiles, RanksDoNotSayHowTextsAreSplit) {
  Folder folder("tik_llama3");
  folder.files["config.json"] = R"({"model_type": "grok"})";
  folder.expect_refused(ErrorCode::kUnsupported, "model_type 'grok' of config.json says how");
  folder.files["tokenizer_config.json"] = R"({"tokenizer_class": "GrokTokenizer"})";
  folder.expect_refused(ErrorCode::kUnsupported, "tokenizer_class 'GrokTokenizer'");
}

TEST(ModelFiles, RanksAreMalformed) {
  Folder folder("tik_llama3");
  const std::string good = folder.files["tokenizer.model"];
  for (const auto& [more, message] : {
           std::pair("!!!! 900\n", "is not a token in base64"),
           std::pair("YWJj 1\n", "the rank 1 is there twice"),
           std::pair("YWJj 9999999\n", "is not a token in base64"),
           std::pair("YWJj x\n", "is not a token in base64"),
           std::pair("YWJj\n", "is not a token in base64"),
           std::pair("IQ== 700\n", "the token '!' is there twice"),
       }) {
    folder.files["tokenizer.model"] = good + more;
    folder.expect_refused(ErrorCode::kBadInput, message);
  }
}

// Every prefix of a model, and every changed byte, gives a tokenizer or one line of error.
TEST(ModelFiles, DamagedModelsEnd) {
  Folder folder("t5");
  const std::string good = folder.files["spiece.model"];
  const auto try_model = [&](std::string model) {
    folder.files["spiece.model"] = std::move(model);
    const auto tokenizer = folder.load();
    if (tokenizer) return;
    EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(tokenizer.error().message.find("d/spiece.model"), 0U) << tokenizer.error().message;
  };
  for (size_t size = 1; size < good.size(); size += 131) try_model(good.substr(0, size));
  for (size_t at = 0; at < good.size(); at += 97) {
    std::string model = good;
    model[at] = static_cast<char>(model[at] ^ 0x81);
    try_model(std::move(model));
  }
}

}  // namespace
}  // namespace ferry::text::tokenizer_files_test
