#include "pipeline/tokenizer_notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::pipeline {

std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size) {
  const auto file = std::ranges::find(copied, text::kTokenizerFile, &packer::CopiedFile::name);
  if (file == copied.end()) return {};
  const Result<text::Tokenizer> tokenizer = file->text
                                                ? text::Tokenizer::parse(*file->text, file->name)
                                                : text::Tokenizer::load(file->source_path);
  if (!tokenizer) {
    return {fmt::format("{}; the bundle will take tokens, but no text", tokenizer.error().message)};
  }
  if (tokenizer->id_bound() <= vocab_size) return {};
  return {
      fmt::format("{}: has ids up to {}, the model's vocabulary ends at {}: texts that need "
                  "more will not run",
                  printable(file->text ? file->name : file->source_path), tokenizer->id_bound() - 1,
                  vocab_size - 1)};
}

}  // namespace ferry::pipeline
