#include "text/tokenizer/text_stream.h"

namespace ferry::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string behind(const std::string& text, const std::string& given) {
  return text.size() > given.size() ? text.substr(given.size()) : "";
}

}  // namespace

Result<std::string> TextStream::push(int64_t id) {
  window_.push_back(id);
  const std::string text = FERRY_TRY(tokenizer_->decode(window_, /*skip_special=*/true));
  if (text.size() <= given_.size() || text.ends_with(kReplacement)) return std::string();
  std::string more = behind(text, given_);
  // Decoders treat the first token in a special way (they strip a blank). So the ids of this text
  // stay in the window, and the next ids are never the first.
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(context_));
  context_ = window_.size();
  given_ = FERRY_TRY(tokenizer_->decode(window_, /*skip_special=*/true));
  return more;
}

Result<std::string> TextStream::finish() {
  const std::string text = FERRY_TRY(tokenizer_->decode(window_, /*skip_special=*/true));
  std::string more = behind(text, given_);
  window_.clear();
  context_ = 0;
  given_.clear();
  return more;
}

}  // namespace ferry::text
