#include "cli/token_texts.h"

#include <array>
#include <string_view>
#include <utility>

#include "prompt/image_input.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

TokenTexts::TokenTexts(const packer::Bundle& bundle) {
  Result<text::Tokenizer> tokenizer =
      text::load_tokenizer(bundle.text_directory(), prompt::reader_of(bundle));
  if (tokenizer) tokenizer_.emplace(std::move(*tokenizer));
}

std::optional<std::string> TokenTexts::find(int64_t id) const {
  // Decoders strip what begins a text: the second of two stands within one.
  const std::array<int64_t, 2> twice = {id, id};
  const auto one = tokenizer_->decode(std::span(twice).first(1), /*skip_special=*/false);
  const auto two = tokenizer_->decode(twice, /*skip_special=*/false);
  if (!one || !two) return std::nullopt;
  std::string found = two->starts_with(*one) ? two->substr(one->size()) : *one;
  if (found.empty() || found.find(kReplacement) != std::string::npos) return std::nullopt;
  return found;
}

std::optional<std::string> TokenTexts::text(int64_t id) {
  if (!tokenizer_) return std::nullopt;
  const auto [at, fresh] = known_.try_emplace(id);
  if (fresh) at->second = find(id);
  return at->second;
}

std::optional<std::string> TokenTexts::text(std::span<const int64_t> ids) const {
  if (!tokenizer_) return std::nullopt;
  Result<std::string> all = tokenizer_->decode(ids, /*skip_special=*/false);
  return all ? std::optional(std::move(*all)) : std::nullopt;
}

}  // namespace ferry::cli
