#include "checkpoint/carried_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "core/text.h"

namespace ferry::checkpoint {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kMostFiles = 64;

struct CarriedName {
  std::string_view name;  // in lower case
  uint64_t max_bytes;
};
// Files of other programs. Ours read those of SentencePiece and tiktoken where tokenizer.json is
// missing.
constexpr CarriedName kNames[] = {
    {"readme.md", 16 * kMiB},           {"readme", 16 * kMiB},
    {"model_card.md", 16 * kMiB},       {"added_tokens.json", 64 * kMiB},
    {"merges.txt", 64 * kMiB},          {"sentencepiece.bpe.model", 64 * kMiB},
    {"spiece.model", 64 * kMiB},        {"tekken.json", 64 * kMiB},
    {"tokenizer.model", 64 * kMiB},     {"vocab.json", 64 * kMiB},
    {"vocab.txt", 64 * kMiB},           {"tiktoken.model", 64 * kMiB},
    {"qwen.tiktoken", 64 * kMiB},       {"tokenizer.tiktoken", 64 * kMiB},
    {"o200k_base.tiktoken", 64 * kMiB}, {"cl100k_base.tiktoken", 64 * kMiB},
};

// Legal texts: one of these words, or one with more behind '-', '_' or a space; then one of the
// endings.
constexpr std::string_view kLegalWords[] = {
    "acceptable_use_policy",
    "copying",
    "copyright",
    "licence",
    "license",
    "notice",
    "patents",
    "terms",
    "use_policy",
    "use-policy",
};
constexpr std::string_view kLegalEndings[] = {"", ".htm", ".html", ".md", ".pdf", ".rst", ".txt"};
constexpr uint64_t kMaxLegalBytes = 16 * kMiB;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_legal_text(std::string_view name) {
  const size_t dot = std::min(name.rfind('.'), name.size());
  if (!std::ranges::count(kLegalEndings, name.substr(dot))) return false;
  const std::string_view stem = name.substr(0, dot);
  return std::ranges::any_of(kLegalWords, [&](std::string_view word) {
    if (!stem.starts_with(word)) return false;
    return stem.size() == word.size() ||
           std::string_view("-_ ").find(stem[word.size()]) != std::string_view::npos;
  });
}

// The size that a file of this name may have; nullopt where it is not carried along.
std::optional<uint64_t> size_limit(std::string_view any_case) {
  const std::string name = lower(any_case);
  const auto found = std::ranges::find(kNames, std::string_view(name), &CarriedName::name);
  if (found != std::end(kNames)) return found->max_bytes;
  return is_legal_text(name) ? std::optional(kMaxLegalBytes) : std::nullopt;
}

// The file, or why it stays behind.
Result<InputFile> open_carried(const Directory& directory, const std::string& name) {
  const std::string shown = printable(directory.path_of(name));
  const bool plain = std::ranges::all_of(
      name, [](char c) { return c >= ' ' && c <= '~' && c != '\\' && c != '/'; });
  if (!plain) return bad_input(fmt::format("{}: a name that is not plain ASCII", shown));
  InputFile file = FERRY_TRY(open_in_checkpoint(directory, name));
  const uint64_t limit = *size_limit(name);
  if (file.size() <= limit) return file;
  return bad_input(
      fmt::format("{}: {} bytes, files of this kind have at most {}", shown, file.size(), limit));
}

}  // namespace

bool is_carried(std::string_view name) { return size_limit(name).has_value(); }

void carry_files(const Directory& directory, std::vector<packer::CopiedFile>& copied,
                 std::vector<std::string>& notes) {
  const Result<std::vector<std::string>> names = directory.names();
  if (!names) return notes.push_back(names.error().message + "; no licence files are carried over");
  size_t taken = 0;
  for (const std::string& name : *names) {
    if (!is_carried(name)) continue;
    Result<InputFile> file = open_carried(directory, name);
    if (file && ++taken > kMostFiles) {
      file = bad_input(fmt::format("{}: more than {} files of this kind",
                                   printable(directory.path_of(name)), kMostFiles));
    }
    if (file) {
      copied.push_back({name, std::make_shared<const InputFile>(*std::move(file))});
    } else {
      notes.push_back(file.error().message + "; the bundle will not have it");
    }
  }
}

}  // namespace ferry::checkpoint
