// The texts of single tokens, for reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "packer/bundle_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

class TokenTexts {
 public:
  // Reads the tokenizer of a bundle. Without one, or one that does not load, tokens have no texts.
  explicit TokenTexts(const packer::Bundle& bundle);

  // As it stands within a text, with blanks before it; none where it is no whole character.
  std::optional<std::string> text(int64_t id);
  // Of a sequence, special tokens too; none without tokenizer.
  std::optional<std::string> text(std::span<const int64_t> ids) const;

 private:
  std::optional<std::string> find(int64_t id) const;

  std::optional<text::Tokenizer> tokenizer_;
  std::map<int64_t, std::optional<std::string>> known_;
};

}  // namespace ferry::cli
