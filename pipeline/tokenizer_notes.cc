#include "pipeline/tokenizer_notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/text.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::pipeline {
namespace {

// The files that the bundle will have.
text::ReadFile copied_reader(const std::vector<packer::CopiedFile>& copied) {
  return [&copied](const std::string& name, uint64_t limit) -> Result<std::string> {
    const auto file = std::ranges::find(copied, name, &packer::CopiedFile::name);
    if (file == copied.end()) return std::string();
    return file->text ? Result<std::string>(*file->text) : read_text(*file->file, limit);
  };
}

}  // namespace

std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size) {
  const auto find = [&](std::string_view name) {
    return std::ranges::find(copied, name, &packer::CopiedFile::name);
  };
  const std::string_view name = text::find_tokenizer_file(
      [&](std::string_view known) { return find(known) != copied.end(); });
  if (name.empty()) return {};
  const packer::CopiedFile& file = *find(name);
  const std::string shown = file.text ? file.name : printable(file.file->path());
  const size_t slash = shown.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : shown.substr(0, slash);
  const Result<text::Tokenizer> tokenizer = text::load_tokenizer(directory, copied_reader(copied));
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
