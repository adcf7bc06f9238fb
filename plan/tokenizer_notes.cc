#include "plan/tokenizer_notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/file.h"
#include "core/text.h"
#include "text/blank_token.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::plan {
namespace {

// The name of the tokenizer's folder in messages.
std::string folder_of(const packer::CopiedFile& file) {
  const std::string shown = file.text ? file.name : printable(file.file->path());
  const size_t slash = shown.rfind('/');
  return slash == std::string::npos ? "" : shown.substr(0, slash);
}

// The copied file that the tokenizer is read from; nullptr if there is none.
const packer::CopiedFile* tokenizer_file(const std::vector<packer::CopiedFile>& copied) {
  const auto find = [&](std::string_view name) {
    return std::ranges::find(copied, name, &packer::CopiedFile::name);
  };
  const std::string_view name = text::find_tokenizer_file(
      [&](std::string_view known) { return find(known) != copied.end(); });
  return name.empty() ? nullptr : &*find(name);
}

}  // namespace

text::ReadFile reader_of(const std::vector<packer::CopiedFile>& copied) {
  return [&copied](const std::string& name, uint64_t limit) -> Result<std::string> {
    const auto file = std::ranges::find(copied, name, &packer::CopiedFile::name);
    if (file == copied.end()) return std::string();
    return file->text ? Result<std::string>(*file->text) : read_text(*file->file, limit);
  };
}

Result<text::Tokenizer> tokenizer_in(const std::vector<packer::CopiedFile>& copied) {
  const packer::CopiedFile* file = tokenizer_file(copied);
  if (file != nullptr) return text::load_tokenizer(folder_of(*file), reader_of(copied));
  return fail(ErrorCode::kUsage, "the checkpoint has no tokenizer");
}

Result<text::ChatTemplate> chat_template_in(const std::vector<packer::CopiedFile>& copied) {
  const packer::CopiedFile* file = tokenizer_file(copied);
  if (file != nullptr) return text::ChatTemplate::load(folder_of(*file), reader_of(copied));
  return fail(ErrorCode::kUsage, "the checkpoint has no tokenizer");
}

std::optional<int64_t> token_id_in(const std::vector<packer::CopiedFile>& copied,
                                   std::string_view token) {
  const packer::CopiedFile* file = tokenizer_file(copied);
  if (file == nullptr) return std::nullopt;
  const auto tokenizer = text::load_tokenizer(folder_of(*file), reader_of(copied));
  return tokenizer ? tokenizer->find(token) : std::nullopt;
}

Status check_blank(const std::vector<packer::CopiedFile>& copied, int64_t blank) {
  const packer::CopiedFile* file = tokenizer_file(copied);
  if (file == nullptr) return {};
  const std::string folder = folder_of(*file);
  const text::ReadFile read = reader_of(copied);
  const auto tokenizer = text::load_tokenizer(folder, read);
  if (!tokenizer) return {};  // tokenizer_notes() says why
  const int64_t own = FERRY_TRY(text::blank_token(*tokenizer, folder, read));
  if (own == blank) return {};
  // The reference gives rows that its mask hides the blank of the model, and makes text of them.
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: pad_token of the tokenizer is {}, 'pad_token_id' of the config {}: "
                          "not supported",
                          printable(folder), own, blank));
}

std::vector<std::string> tokenizer_notes(const std::vector<packer::CopiedFile>& copied,
                                         int64_t vocab_size) {
  const packer::CopiedFile* file = tokenizer_file(copied);
  if (file == nullptr) return {};
  const auto tokenizer = text::load_tokenizer(folder_of(*file), reader_of(copied));
  if (!tokenizer) {
    return {fmt::format("{}; the bundle will take tokens, but no text", tokenizer.error().message)};
  }
  if (tokenizer->id_bound() <= vocab_size) return {};
  return {
      fmt::format("{}: has ids up to {}, the model's vocabulary ends at {}: texts that need "
                  "more will not run",
                  file->text ? file->name : printable(file->file->path()),
                  tokenizer->id_bound() - 1, vocab_size - 1)};
}

}  // namespace ferry::plan
