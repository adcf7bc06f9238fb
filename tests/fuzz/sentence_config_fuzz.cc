// Input: modules.json, sentence_bert_config.json, 1_Pooling/config.json and 2_Dense/config.json of
// a sentence-transformers folder, separated by NUL bytes. An empty text is an absent file.

#include "converters/config/sentence_config.h"

#include <map>

#include "tests/fuzz/parts.h"
#include "tests/fuzz/require.h"

namespace ferry::sentence_config_fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::map<std::string, std::string> files;
  for (const char* name : {"modules.json", "sentence_bert_config.json", "1_Pooling/config.json",
                           "2_Dense/config.json"}) {
    files[name] = cut(text);
  }
  const converters::FolderText read =
      [&](const std::string& path) -> Result<std::optional<std::string>> {
    // A module's folder is a plain name, so only paths below the model may be read.
    require(path.find("..") == std::string::npos && !path.starts_with('/'));
    require(std::ranges::count(path, '/') <= 1);
    const auto found = files.find(path);
    if (found == files.end() || found->second.empty()) return std::optional<std::string>();
    return std::optional(found->second);
  };
  const auto config = converters::parse_sentence_config(read, "d");
  if (!config) {
    require_good_message(config.error());
    return 0;
  }
  if (!*config) return 0;
  require((*config)->width(8) > 0);
  require(!(*config)->max_tokens || *(*config)->max_tokens > 0);
  return 0;
}

}  // namespace ferry::sentence_config_fuzz
