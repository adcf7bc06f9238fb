#include "prompt/token_entities.h"

#include <algorithm>
#include <utility>

#include "core/utf8.h"
#include "prompt/classifier_text.h"

namespace ferry::prompt {
namespace {

constexpr std::pair<std::string_view, Aggregation> kAggregations[] = {
    {"none", Aggregation::kNone},
    {"simple", Aggregation::kSimple},
    {"first", Aggregation::kFirst},
    {"average", Aggregation::kAverage},
    {"max", Aggregation::kMax}};
constexpr std::string_view kOutside = "O";

struct ScoredToken {
  std::string word = {};
  size_t index = 0;
  text::TextRange span = {};
  std::vector<float> scores = {};
  bool continues = false;  // the token is not the first of its word
};

// One or several tokens that have a label.
struct Labelled {
  std::vector<std::string> words;
  size_t index = 0, label = 0;
  float score = 0;
  uint32_t begin = 0, end = 0;
};

size_t best_of(const std::vector<float>& scores) {
  return static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
}

Labelled labelled(const ScoredToken& token) {
  const size_t label = best_of(token.scores);
  return {{token.word}, token.index, label, token.scores[label], token.span.begin, token.span.end};
}

// Gives a word one label.
Result<Labelled> labelled_word(std::span<const ScoredToken> tokens, Aggregation aggregation,
                               const text::Tokenizer& tokenizer) {
  std::vector<float> scores = tokens.front().scores;
  if (aggregation == Aggregation::kMax) {
    scores = std::ranges::max_element(tokens, {}, [](const ScoredToken& token) {
               return std::ranges::max(token.scores);
             })->scores;
  } else if (aggregation == Aggregation::kAverage) {
    for (size_t i = 0; i < scores.size(); ++i) {
      double sum = 0;
      for (const ScoredToken& token : tokens) sum += token.scores[i];
      scores[i] = static_cast<float>(sum / static_cast<double>(tokens.size()));
    }
  }
  const size_t label = best_of(scores);
  Labelled word = {{}, 0, label, scores[label], tokens.front().span.begin, tokens.back().span.end};
  std::vector<std::string> words;
  for (const ScoredToken& token : tokens) words.push_back(token.word);
  word.words = {FERRY_TRY(tokenizer.join(std::move(words)))};
  return word;
}

Result<std::vector<Labelled>> labelled_words(std::span<const ScoredToken> tokens,
                                             Aggregation aggregation,
                                             const text::Tokenizer& tokenizer) {
  std::vector<Labelled> words;
  for (size_t begin = 0; begin < tokens.size();) {
    size_t end = begin + 1;
    while (end < tokens.size() && tokens[end].continues) ++end;
    words.push_back(
        FERRY_TRY(labelled_word(tokens.subspan(begin, end - begin), aggregation, tokenizer)));
    begin = end;
  }
  return words;
}

// Returns what follows "B-" or "I-", or the label itself.
std::string_view tag_of(std::string_view label) {
  return label.starts_with("B-") || label.starts_with("I-") ? label.substr(2) : label;
}

class EntityFinder {
 public:
  EntityFinder(std::string_view text, const std::vector<std::string>& labels,
               const text::Tokenizer& tokenizer)
      : text_(text), labels_(labels), tokenizer_(tokenizer) {}

  Result<std::vector<Entity>> find(std::span<const ScoredToken> tokens, Aggregation aggregation) {
    std::vector<Labelled> parts;
    if (aggregation == Aggregation::kNone || aggregation == Aggregation::kSimple) {
      for (const ScoredToken& token : tokens) parts.push_back(labelled(token));
    } else {
      parts = FERRY_TRY(labelled_words(tokens, aggregation, tokenizer_));
    }
    if (aggregation == Aggregation::kNone) return single(parts);
    return joined(parts);
  }

 private:
  std::vector<Entity> single(const std::vector<Labelled>& parts) const {
    std::vector<Entity> entities;
    for (const Labelled& part : parts) {
      if (labels_[part.label] == kOutside) continue;
      Entity& entity = entities.emplace_back(place(part.begin, part.end));
      entity.label = labels_[part.label];
      entity.score = part.score;
      entity.word = part.words.front();
      entity.index = part.index;
    }
    return entities;
  }

  Result<std::vector<Entity>> joined(const std::vector<Labelled>& parts) const {
    std::vector<Entity> entities;
    for (size_t begin = 0; begin < parts.size();) {
      size_t end = begin + 1;
      while (end < parts.size() && continues(parts[end - 1], parts[end])) ++end;
      Entity entity = FERRY_TRY(join(std::span(parts).subspan(begin, end - begin)));
      if (entity.label != kOutside) entities.push_back(std::move(entity));
      begin = end;
    }
    return entities;
  }

  bool continues(const Labelled& before, const Labelled& part) const {
    const std::string_view label = labels_[part.label];
    return !label.starts_with("B-") && tag_of(label) == tag_of(labels_[before.label]);
  }

  Result<Entity> join(std::span<const Labelled> parts) const {
    Entity entity = place(parts.front().begin, parts.back().end);
    std::vector<std::string> words;
    double sum = 0;
    for (const Labelled& part : parts) {
      words.insert(words.end(), part.words.begin(), part.words.end());
      sum += part.score;
    }
    const std::string& label = labels_[parts.front().label];
    const size_t dash = label.find('-');
    entity.label = dash == std::string::npos ? label : label.substr(dash + 1);
    entity.score = static_cast<float>(sum / static_cast<double>(parts.size()));
    entity.word = FERRY_TRY(tokenizer_.join(std::move(words)));
    return entity;
  }

  // Counts characters, as the reference does.
  Entity place(size_t begin, size_t end) const {
    const auto characters = [&](size_t bytes) {
      const std::string_view before = text_.substr(0, bytes);
      return static_cast<size_t>(std::ranges::count_if(
          before, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    };
    Entity entity;
    entity.begin = characters(begin);
    entity.end = characters(end);
    return entity;
  }

  std::string_view text_;
  const std::vector<std::string>& labels_;
  const text::Tokenizer& tokenizer_;
};

// Whether a token is not the first of its word. Tokenizers that mark such tokens write more than
// the text has; for others a blank before or at the beginning of the token tells.
bool is_subword(std::string_view text, text::TextRange span, std::string_view token,
                const text::Tokenizer& tokenizer) {
  if (tokenizer.marks_subwords()) {
    const auto count = [](std::string_view s) {
      return std::ranges::count_if(
          s, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    };
    return count(token) != count(text.substr(span.begin, span.end - span.begin));
  }
  if (span.begin == 0) return false;
  const size_t before = utf8::decode_before(text, span.begin).size;
  const size_t after = span.begin < text.size() ? utf8::decode_valid(text, span.begin).size : 0;
  return text.substr(span.begin - before, before + after).find(' ') == std::string_view::npos;
}

}  // namespace

std::optional<Aggregation> find_aggregation(std::string_view name) {
  for (const auto& [known, aggregation] : kAggregations) {
    if (known == name) return aggregation;
  }
  return std::nullopt;
}

Result<std::vector<Entity>> entities_of(std::string_view text, const text::TypedTokens& tokens,
                                        std::span<const float> outputs,
                                        const std::vector<std::string>& labels,
                                        Aggregation aggregation, const text::Tokenizer& tokenizer) {
  std::vector<ScoredToken> scored;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.special[i]) continue;
    const int64_t id = tokens.ids[i];
    const text::TextRange span = tokens.spans[i];
    std::string word = tokenizer.token(id).value_or("");
    const bool unknown = tokenizer.unknown() == id;
    const bool continues = !unknown && is_subword(text, span, word, tokenizer);
    if (unknown) word = text.substr(span.begin, span.end - span.begin);
    scored.push_back({std::move(word), i, span,
                      scores_of(outputs.subspan(i * labels.size(), labels.size()), "softmax"),
                      continues});
  }
  return EntityFinder(text, labels, tokenizer).find(scored, aggregation);
}

}  // namespace ferry::prompt
