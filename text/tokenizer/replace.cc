#include "text/tokenizer/replace.h"

namespace ferry::text {

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

}  // namespace ferry::text
