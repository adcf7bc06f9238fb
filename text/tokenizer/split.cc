#include "text/tokenizer/split.h"

namespace ferry::text {

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
