// The tokens and the texts that end an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

// Returns eos_token_id of generation_config.json, a number or a list. If it is absent, returns the
// id that the tokenizer gives eos_token of tokenizer_config.json. If that file has no
// added_tokens_decoder, special_tokens_map.json takes precedence over it. Returns no ids if no file
// states a token. kBadInput for values of other types, and for an eos_token that the tokenizer does
// not know.
Result<std::vector<int64_t>> end_tokens(const std::string& directory);

// StopTexts cuts a text that arrives in parts before the first stop text.
class StopTexts {
 public:
  // Stop texts must not be empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next part, and returns the text that is certainly before every stop text. The rest is
  // kept, because it may begin a stop text. After a stop text has been found, push() returns
  // nothing.
  std::string push(std::string_view part);
  // Returns the kept text, because no more parts follow.
  std::string finish();

  // Returns the stop text that was found. Among several, the one that ends first is found, and of
  // those the longest, so the result does not depend on how the text is cut into parts.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  std::optional<std::string> found_;
};

}  // namespace ferry::text
