// Writes the prompts of a comparison into a parity report (docs/verifying.md, "Prompts").
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

// Decodes token ids for display.
class TokenTexts {
 public:
  // Reads the tokenizer of a bundle. If there is none or it does not load, tokens have no texts.
  explicit TokenTexts(const packer::Bundle& bundle);

  // Returns the text that a token has inside a sequence, with its leading blanks; nullopt if the
  // token is no whole character.
  std::optional<std::string> text(int64_t id);
  // Returns the text of a sequence with its special tokens; nullopt without a tokenizer.
  std::optional<std::string> text(std::span<const int64_t> ids) const;

 private:
  std::optional<std::string> find(int64_t id) const;

  std::optional<text::Tokenizer> tokenizer_;
  std::map<int64_t, std::optional<std::string>> known_;
};

// Writes the member `prompts` of the open object.
void write_prompts(JsonWriter& json, const proof::ParityReport& report, TokenTexts& texts);

}  // namespace ferry::cli
