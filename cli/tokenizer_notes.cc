#include "cli/tokenizer_notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "runner/tokenizer/tokenizer.h"

namespace ferry::cli {

std::vector<std::string> tokenizer_notes(const std::vector<CopiedFile>& copied,
                                         int64_t vocab_size) {
  const auto file = std::ranges::find(copied, kTokenizerFile, &CopiedFile::name);
  if (file == copied.end()) return {};
  const Result<Tokenizer> tokenizer =
      file->text ? Tokenizer::parse(*file->text, file->name) : Tokenizer::load(file->source_path);
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

}  // namespace ferry::cli
