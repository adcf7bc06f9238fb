// Input: tokenizer_config.json, config.json, special_tokens_map.json, added_tokens.json, the
// vocabulary and merges.txt, separated by NUL bytes. A vocabulary that begins with a brace is
// vocab.json, any other is vocab.txt. An empty text is an absent file.

#include <array>
#include <cstdint>

#include "core/utf8.h"
#include "tests/fuzz/parts.h"
#include "tests/fuzz/require.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::tokenizer_files_fuzz {
namespace {

constexpr std::string_view kSample = "It's a  t\xC3\xA9st, 12345\r\n\r\n <s> \xF0\x9F\xA6\x84 '";
constexpr std::array<const char*, 6> kNames = {
    "tokenizer_config.json", "config.json", "special_tokens_map.json",
    "added_tokens.json",     "vocab.txt",   "merges.txt"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::array<std::string, kNames.size()> files;
  for (std::string& file : files) file = cut(input);
  const text::ReadFile read = [&](const std::string& name, uint64_t) -> Result<std::string> {
    const bool pairs = files[4].starts_with('{');
    if (name == "vocab.json") return pairs ? files[4] : std::string();
    if (name == "vocab.txt" && pairs) return std::string();
    const auto found = std::ranges::find(kNames, name);
    return found == kNames.end() ? std::string() : files[found - kNames.begin()];
  };
  auto tokenizer = text::load_tokenizer("d", read);
  if (!tokenizer) {
    // The vocabulary may be absent.
    if (tokenizer.error().code != ErrorCode::kIo) require_good_message(tokenizer.error());
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

}  // namespace ferry::tokenizer_files_fuzz
