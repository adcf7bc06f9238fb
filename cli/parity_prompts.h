// The prompts of a comparison in the document of a parity report (docs/verifying.md, "Prompts").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "core/json_writer.h"
#include "packer/bundle_reader.h"
#include "proof/parity_report.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

// The texts of single tokens.
class TokenTexts {
 public:
  // Reads the tokenizer of a bundle. Without one, or one that does not load, tokens have no texts.
  explicit TokenTexts(const packer::Bundle& bundle);

  // As it stands within a text, with blanks before it; none where it is no whole character.
  std::optional<std::string> text(int64_t id);
  // The text of a sequence, special tokens too; none without tokenizer.
  std::optional<std::string> text(std::span<const int64_t> ids) const;

 private:
  std::optional<std::string> find(int64_t id) const;

  std::optional<text::Tokenizer> tokenizer_;
  std::map<int64_t, std::optional<std::string>> known_;
};

// The member `prompts` of an open object.
void write_prompts(JsonWriter& json, const proof::ParityReport& report, TokenTexts& texts);

}  // namespace ferry::cli
