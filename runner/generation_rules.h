// GenerationRules: tokens that generation_config.json of an encoder-decoder forbids or forces, as
// the processors of transformers' generate() do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ferry::runner {

struct GenerationRules {
  std::vector<std::vector<int64_t>> bad_words = {};  // none of these follow each other
  std::vector<int64_t> suppressed = {};              // never chosen
  std::vector<int64_t> suppressed_first = {};        // not chosen first, behind forced_first
  std::optional<int64_t> forced_first = {};          // behind a prompt of one token
  std::vector<int64_t> forced_last = {};             // the `most`-th token is one of these
  int64_t most = 0;                                  // tokens of an answer; 0: no last token

  bool empty() const {
    return bad_words.empty() && suppressed.empty() && suppressed_first.empty() && !forced_first &&
           forced_last.empty();
  }
};

// Sets the logits of tokens that the rules do not allow behind `prompt` and `answer` to minus
// infinity. Ids of the rules must be below the number of logits.
void apply_rules(const GenerationRules& rules, std::span<const int64_t> prompt,
                 std::span<const int64_t> answer, std::span<float> logits);

}  // namespace ferry::runner
