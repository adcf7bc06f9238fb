// Matcher finds the matches of the pattern of a Split or a Replace, the two steps below. The
// pattern is a literal text, a regex, or one of the known word-splitting regexes, which are
// implemented directly.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/tokenizer_json.h"
#include "text/tokenizer/tokenizer_steps.h"

namespace ferry::text {

// Matchers are not thread-safe.
class Matcher {
 public:
  virtual ~Matcher() = default;
  // Appends the matches in `text` from left to right. They do not overlap and are not empty.
  virtual Status find_all(std::string_view text, std::vector<TextRange>& matches) const = 0;
};

// `where` begins error messages.
Result<std::unique_ptr<Matcher>> make_matcher(const StepPattern& pattern, const std::string& where);

// Returns the largest size to which steps may grow a text of `size` bytes. Real tokenizers need
// less. The limit stops files whose every step doubles the text.
inline size_t growth_limit(size_t size) {
  return std::min(size * 32 + (size_t{1} << 16), size_t{1} << 30);
}

// Replace replaces every match of a pattern by a text. Normalizers and decoders have this step.
class Replace {
 public:
  // Reads the fields `pattern` and `content`.
  static Result<Replace> read(StepFields& fields);
  // kBadInput if the text would become larger than `most` bytes.
  Status apply(std::string& text, size_t most) const;
  bool removes() const { return content_.empty(); }

 private:
  std::unique_ptr<Matcher> matcher_;
  std::string content_, where_;
};

// SplitBehavior says how matches become pieces.
enum class SplitBehavior {
  kRemoved,
  kIsolated,            // each match is a piece
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
  kContiguous           // neighbouring matches are one piece
};
std::optional<SplitBehavior> find_split_behavior(std::string_view name);

// Split splits every piece at the matches of a matcher.
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
