// TokenizerSettings holds the settings in the files beside a vocabulary: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json and config.json.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/read_file.h"

namespace ferry::text {

// A token that is matched literally.
struct TokenSpec {
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = true;
};

struct TokenizerSettings {
  // The named tokens, in the order in which the reference adds them.
  static constexpr std::array<std::string_view, 7> kNames = {
      "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

  std::string class_name;  // without "Fast" at its end; empty if absent
  std::string model_type;  // from config.json; empty if absent
  // Tokens by name. nullopt stands for null, which removes a default.
  std::map<std::string, std::optional<TokenSpec>, std::less<>> named;
  std::map<int64_t, TokenSpec> added;  // by the stated id
  std::string_view added_file;         // the name of the file that states the added tokens
  std::vector<std::string> extra;      // further special tokens, by content
  std::optional<bool> add_bos, add_eos, add_prefix_space, legacy;
  std::optional<bool> lower_case, chinese_chars, strip_accents;  // for BERT
  std::optional<int64_t> extra_ids;

  // added_tokens_decoder of tokenizer_config.json, if present, is the only source. Otherwise
  // special_tokens_map.json takes precedence over tokenizer_config.json, and added_tokens.json adds
  // tokens. kBadInput for malformed files. `directory` begins error messages.
  static Result<TokenizerSettings> read(const std::string& directory, const ReadFile& read);
};

}  // namespace ferry::text
