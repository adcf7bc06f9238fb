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

// -- Replace

Result<Replace> Replace::read(StepFields& fields) {
  Replace replace;
  const StepPattern pattern = FERRY_TRY(read_pattern(fields));
  replace.content_ = FERRY_TRY(fields.text("content"));
  if (replace.content_.size() > kMaxStepText) return fields.bad("'content' is too long");
  replace.where_ = fields.where();
  replace.matcher_ = FERRY_TRY(make_matcher(pattern, fields.where()));
  return replace;
}

Status Replace::apply(std::string& text, size_t most) const {
  std::vector<TextRange> matches;
  FERRY_RETURN_IF_ERROR(matcher_->find_all(text, matches));
  if (matches.empty()) return {};
  // The product cannot overflow, because both factors have limits.
  if (text.size() + matches.size() * content_.size() > most) {
    return bad_input(where_ + ": the text becomes too long");
  }
  std::string out;
  out.reserve(text.size() + matches.size() * content_.size());
  size_t copied = 0;
  for (const TextRange& match : matches) {
    out.append(text, copied, match.begin - copied).append(content_);
    copied = match.end;
  }
  out.append(text, copied);
  text = std::move(out);
  return {};
}

// -- Split

std::optional<SplitBehavior> find_split_behavior(std::string_view name) {
  using enum SplitBehavior;
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", kRemoved},
      {"Isolated", kIsolated},
      {"MergedWithPrevious", kMergedWithPrevious},
      {"MergedWithNext", kMergedWithNext},
      {"Contiguous", kContiguous},
  };
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  return std::nullopt;
}

// Adds a range, matched or not, to the output pieces.
void Split::add(TextRange range, bool matched, std::vector<TextRange>& out) {
  matched = matched != invert_;
  bool joins = false;
  switch (behavior_) {
    case SplitBehavior::kRemoved:
      if (matched) return;
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kContiguous:
      joins = matched == last_matched_;
      break;
    case SplitBehavior::kMergedWithPrevious:
      joins = matched && !last_matched_;
      break;
    case SplitBehavior::kMergedWithNext:
      // A match begins a piece, and the unmatched text behind it belongs to the same piece.
      joins = last_matched_ && !matched;
      break;
  }
  if (joins && !first_) {
    out.back().end = range.end;
  } else {
    out.push_back(range);
  }
  first_ = false;
  last_matched_ = matched;
}

void Split::cut(TextRange piece, std::vector<TextRange>& out) {
  first_ = true;
  last_matched_ = false;
  uint32_t done = piece.begin;
  for (const TextRange& match : matches_) {
    const TextRange range = {piece.begin + match.begin, piece.begin + match.end};
    if (done < range.begin) add({done, range.begin}, false, out);
    add(range, true, out);
    done = range.end;
  }
  if (done < piece.end) add({done, piece.end}, false, out);
}

Status Split::apply(Pieces& pieces) {
  out_.clear();
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    matches_.clear();
    FERRY_RETURN_IF_ERROR(matcher_->find_all(pieces.at(i), matches_));
    cut(pieces.ranges[i], out_);
  }
  std::swap(pieces.ranges, out_);
  return {};
}

}  // namespace ferry::text
