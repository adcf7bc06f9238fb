// Input: a precompiled_charsmap.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/utf8.h"
#include "tests/fuzz/require.h"
#include "text/tokenizer/charsmap.h"

namespace ferry::charsmap_fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto map = text::Charsmap::parse(bytes, "m");
  if (!map) {
    require_good_message(map.error());
    return 0;
  }
  std::string text =
      "a\xCC\x81 e\xCC\x81\xEF\xAC\x81 \xE2\x84\xA2\t\x01\r\n\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA";
  const Status done = map->apply(text, 4096);
  if (!done) {
    require_good_message(done.error());
    return 0;
  }
  require(utf8::is_valid(text) && text.size() <= 4096);
  return 0;
}

}  // namespace ferry::charsmap_fuzz
