#include "text/tokenizer/matcher.h"

#include "text/tokenizer/word_rules.h"

namespace ferry::text {
namespace {

class Literal final : public Matcher {
 public:
  explicit Literal(std::string text) : literal_(std::move(text)) {}
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const override {
    for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos;) {
      const size_t end = at + literal_.size();
      matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
      at = end;
    }
    return {};
  }

 private:
  std::string literal_;
};

class Pattern final : public Matcher {
 public:
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const override {
    return regex_.find_all(text, matches);
  }

 private:
  Regex regex_;
};

class Words final : public Matcher {
 public:
  explicit Words(const WordRule& rule) : rule_(rule) {}
  Status find_all(std::string_view text, std::vector<TextRange>& matches) const override {
    rule_.find_all(text, matches);
    return {};
  }

 private:
  const WordRule& rule_;
};

}  // namespace

Result<std::unique_ptr<Matcher>> make_matcher(const StepPattern& pattern,
                                              const std::string& where) {
  if (!pattern.is_regex) return std::make_unique<Literal>(pattern.text);
  if (const WordRule* rule = find_word_rule(pattern.text)) return std::make_unique<Words>(*rule);
  return std::make_unique<Pattern>(FERRY_TRY(Regex::compile(pattern.text, where)));
}

}  // namespace ferry::text
