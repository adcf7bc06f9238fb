#include "pipeline/tokenizer_notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/text.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::pipeline {
namespace {

Result<text::Tokenizer> parse(const packer::CopiedFile& file, const std::string& shown) {
  if (file.text) return text::Tokenizer::parse(*file.text, shown);
  return text::Tokenizer::parse(FERRY_TRY(read_text(*file.file, text::kMaxTokenizerFile)), shown);
}

}  // namespace

std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size) {
  const auto file = std::ranges::find(copied, text::kTokenizerFile, &packer::CopiedFile::name);
  if (file == copied.end()) return {};
  const std::string shown = file->text ? file->name : printable(file->file->path());
  const Result<text::Tokenizer> tokenizer = parse(*file, shown);
  if (!tokenizer) {
    return {fmt::format("{}; the bundle will take tokens, but no text", tokenizer.error().message)};
  }
  if (tokenizer->id_bound() <= vocab_size) return {};
  return {
      fmt::format("{}: has ids up to {}, the model's vocabulary ends at {}: texts that need "
                  "more will not run",
                  shown, tokenizer->id_bound() - 1, vocab_size - 1)};
}

}  // namespace ferry::pipeline
