// Input: a tokenizer.json if it begins with a brace. Otherwise it is a text for fixed tokenizers,
// which must decode its ids to the same text.

#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/text.h"
#include "core/utf8.h"
#include "tests/fuzz/require.h"

namespace ferry::tokenizer_fuzz {
namespace {

constexpr std::string_view kSample = "It's a  t\xC3\xA9st, 12345\r\n\r\n <s> \xF0\x9F\xA6\x84 '";

void try_file(std::string_view file) {
  auto tokenizer = text::Tokenizer::parse(file, "f");
  if (!tokenizer) {
    require_good_message(tokenizer.error());
    return;
  }
  const auto ids = tokenizer->encode(kSample, /*add_special=*/true);
  if (!ids) {
    require_good_message(ids.error());
    return;
  }
  const auto text = tokenizer->decode(*ids, /*skip_special=*/false);
  if (text) require(utf8::is_valid(*text));
}

// The tokenizer has all bytes of the byte-level alphabet, a few merges, and the word rule of Llama
// 3.
std::string byte_level_file() {
  std::string vocab;
  const auto add = [&](std::string_view token) {
    const size_t id = static_cast<size_t>(std::count(vocab.begin(), vocab.end(), ':'));
    vocab += (vocab.empty() ? "\"" : ",\"") + std::string(token) + "\":" + std::to_string(id);
  };
  for (int c = 0x21; c < 0x144; ++c) {
    const bool hole = (c > 0x7E && c < 0xA1) || c == 0xAD;
    if (hole || c == ':') continue;
    std::string text = c == '"' || c == '\\' ? "\\" : "";
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else {
      text += static_cast<char>(0xC0 | c >> 6);
      text += static_cast<char>(0x80 | (c & 0x3F));
    }
    add(text);
  }
  for (const char* token : {"th", "the", "\xC4\xA0the", "an", "and"}) add(token);
  const size_t colon = static_cast<size_t>(std::count(vocab.begin(), vocab.end(), ':'));
  return R"({"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split",
    "pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    "behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,
    "trim_offsets":true,"use_regex":false}]},"decoder":{"type":"ByteLevel"},
    "model":{"type":"BPE","vocab":{)" +
         vocab + ",\":\":" + std::to_string(colon) + R"(},"merges":["t h","th e","a n","an d"]}})";
}

void try_text(std::string_view text) {
  static text::Tokenizer tokenizer = [] {
    auto parsed = text::Tokenizer::parse(byte_level_file(), "fixed");
    require(parsed.has_value());
    return std::move(*parsed);
  }();
  const auto ids = tokenizer.encode(text, /*add_special=*/false);
  require(ids.has_value() == utf8::is_valid(text));
  if (!ids) return;
  const auto back = tokenizer.decode(*ids, /*skip_special=*/false);
  require(back.has_value() && *back == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.starts_with("{")) {
    try_file(input);
  } else {
    try_text(input);
  }
  return 0;
}

}  // namespace ferry::tokenizer_fuzz
