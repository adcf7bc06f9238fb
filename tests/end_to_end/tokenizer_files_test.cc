// Tokenizers in other files than tokenizer.json: `tokenize`, `convert`, `run` and `verify` accept
// them.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/utf8.h"
#include "tests/cli/checkpoints.h"
#include "tests/cli/ferry_process.h"
#include "text/tokenizer/byte_level.h"

namespace ferry::tokenizer_files_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

// Writes the tokens of a tokenizer.json as tiktoken ranks.
std::string ranks_of(const Json& tokenizer) {
  std::string ranks;
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    const auto byte = text::byte_level::byte_of(utf8::decode_valid(token, 0).value);
    const std::string bytes(1, static_cast<char>(byte.value_or(0)));
    ranks += to_base64(bytes) + " " + id.dump() + "\n";
  }
  return ranks;
}

TEST(TokenizerFiles, ABundleServesTextWithRanks) {
  const TempDir dir;
  const std::string source = text_checkpoint(dir);
  const auto convert = [&](const char* name) {
    const Outcome outcome =
        run_ferry_once({"convert", source, "-o", dir / name, "--dtype", "f32", "--quiet"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return dir / name;
  };
  const Line question = {"--prompt", "Hello 12345", "--max-new", "4", "--ignore-eos"};
  const auto answer = [&](const std::string& bundle) {
    Line line = {"run", bundle};
    line.insert(line.end(), question.begin(), question.end());
    const Outcome outcome = run_ferry_once(line);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string expected = answer(convert("json"));
  const Json tokenizer = Json::parse(read_bytes(source + "/tokenizer.json"));
  std::filesystem::remove(source + "/tokenizer.json");
  write_bytes(source + "/tokenizer.model", ranks_of(tokenizer));
  const std::string bundle = convert("ranks");
  EXPECT_EQ(answer(bundle), expected);
  write_bytes(dir / "text", "Hello 12345, and again");
  const Outcome text = run_ferry_once({"verify", bundle, "--perplexity", dir / "text", "--text"});
  EXPECT_EQ(text.code, 0) << text.err;
}

// If a bundle will not work with text, `convert` notes it.
TEST(TokenizerFiles, ConvertNotesRanksThatNothingExplains) {
  const TempDir dir;
  const std::string source = text_checkpoint(dir);
  const Json tokenizer = Json::parse(read_bytes(source + "/tokenizer.json"));
  std::filesystem::remove(source + "/tokenizer.json");
  write_bytes(source + "/tokenizer.model", ranks_of(tokenizer));
  Json config = Json::parse(read_bytes(source + "/tokenizer_config.json"));
  config["tokenizer_class"] = "GrokTokenizer";
  write_bytes(source + "/tokenizer_config.json", config.dump());
  const Outcome outcome = run_ferry({"convert", source, "--dry-run"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE((outcome.err + outcome.out).find("tokenizer_class 'GrokTokenizer'"), std::string::npos)
      << outcome.err << outcome.out;
}

TEST(TokenizerFiles, TokenizeTakesFoldersAndFiles) {
  const std::string folder = fixture("tokenizer/models/xlmr");
  const Outcome whole = run_ferry_on("\"Hello\"\n", {"tokenize", folder, "--add-special"});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(whole.out.substr(0, 3), "[0,");  // <s>
  const Outcome file = run_ferry_on(
      "\"Hello\"\n", {"tokenize", folder + "/sentencepiece.bpe.model", "--add-special"});
  EXPECT_EQ(file.out, whole.out);
  const TempDir dir;
  write_bytes(dir / "tokenizer.model",
              "\x0A\x05"
              "abc");
  const Outcome damaged = run_ferry_on("", {"tokenize", dir / "tokenizer.model"});
  EXPECT_EQ(damaged.code, 3);
  EXPECT_EQ(damaged.error_lines(), 1U) << damaged.err;
}

}  // namespace
}  // namespace ferry::tokenizer_files_test
