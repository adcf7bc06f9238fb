// Input: a file tokenizer.model, of SentencePiece or of tiktoken. Its size chooses the contents of
// the files beside it.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/utf8.h"
#include "tests/fuzz/require.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::tokenizer_model_fuzz {
namespace {

constexpr std::string_view kSample = "It's a  t\xC3\xA9st, 12345\r\n\r\n <s> \xF0\x9F\xA6\x84 '";
constexpr std::array<const char*, 8> kSettings = {
    "",
    R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})",
    R"({"tokenizer_class": "GemmaTokenizer", "add_bos_token": true, "add_eos_token": true})",
    R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 3})",
    R"({"tokenizer_class": "XLMRobertaTokenizer"})",
    R"({"tokenizer_class": "AlbertTokenizer"})",
    R"({"tokenizer_class": "QWenTokenizer"})",
    R"({"tokenizer_class": "TikTokenTokenizer",
        "added_tokens_decoder": {"300": {"content": "<s>", "special": true}}})",
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;  // an empty input means that the file is absent
  const std::string model(reinterpret_cast<const char*>(data), size);
  const text::ReadFile read = [&](const std::string& name, uint64_t) -> Result<std::string> {
    if (name == "tokenizer.model") return model;
    if (name == "tokenizer_config.json") return std::string(kSettings[size % kSettings.size()]);
    return std::string();
  };
  auto tokenizer = text::load_tokenizer("d", read);
  if (!tokenizer) {
    require_good_message(tokenizer.error());
    return 0;
  }
  const auto ids = tokenizer->encode(kSample, /*add_special=*/true);
  if (!ids) {
    require_good_message(ids.error());
    return 0;
  }
  const auto text = tokenizer->decode(*ids, /*skip_special=*/false);
  if (text) require(utf8::is_valid(*text));
  return 0;
}

}  // namespace ferry::tokenizer_model_fuzz
