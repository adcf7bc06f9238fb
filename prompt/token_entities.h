// entities_of() finds the words and names in a text whose tokens a classifier has labelled. Source:
// transformers, pipelines/token_classification.py.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_steps.h"

namespace ferry::prompt {

// How tokens are joined. kNone: they are not. kSimple: neighbours of one label, where no B- begins
// another. The others first give the tokens of a word one label: that of its first token, of the
// token with the largest score, or of the mean of their scores.
enum class Aggregation { kNone, kSimple, kFirst, kAverage, kMax };
std::optional<Aggregation> find_aggregation(std::string_view name);

struct Entity {
  std::string label;
  float score = 0;
  std::string word;
  size_t begin = 0, end = 0;  // characters of the text
  size_t index = 0;           // of the token; kNone alone
};

// `outputs` are those of the labels for each of the tokens, which have spans. Entities with the
// label "O" are left out.
Result<std::vector<Entity>> entities_of(std::string_view text, const text::TypedTokens& tokens,
                                        std::span<const float> outputs,
                                        const std::vector<std::string>& labels,
                                        Aggregation aggregation, const text::Tokenizer& tokenizer);

}  // namespace ferry::prompt
