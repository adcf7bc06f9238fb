// Split splits every piece at the matches of a matcher.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/matcher.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace ferry::text {

// SplitBehavior says how matches become pieces.
enum class SplitBehavior {
  kRemoved,
  kIsolated,            // each match is a piece
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
  kContiguous           // neighbouring matches are one piece
};
std::optional<SplitBehavior> find_split_behavior(std::string_view name);

class Split final : public PreTokenizerStep {
 public:
  // With `invert`, the text between the matches counts as matched.
  Split(std::unique_ptr<Matcher> matcher, SplitBehavior behavior, bool invert)
      : matcher_(std::move(matcher)), behavior_(behavior), invert_(invert) {}

  Status apply(Pieces& pieces) override;

 private:
  void cut(TextRange piece, std::vector<TextRange>& out);
  void add(TextRange range, bool matched, std::vector<TextRange>& out);

  std::unique_ptr<Matcher> matcher_;
  SplitBehavior behavior_;
  bool invert_;
  // The state of the current piece.
  std::vector<TextRange> matches_;
  bool first_ = true, last_matched_ = false;
  std::vector<TextRange> out_;
};

}  // namespace ferry::text
