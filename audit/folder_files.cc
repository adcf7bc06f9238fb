#include "audit/folder_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "core/text.h"

namespace ferry::audit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 100'000;
constexpr int kMostLevels = 16;

struct NamePattern {
  std::string_view pattern, type;
};
constexpr NamePattern kPatterns[] = {
    {"tokenizer*", "tokenizer"},        {"vocab*", "tokenizer"},
    {"merges.txt", "tokenizer"},        {"special_tokens_map.json", "tokenizer"},
    {"added_tokens.json", "tokenizer"}, {"spiece.model", "tokenizer"},
    {"*.tiktoken", "tokenizer"},        {"chat_template*", "tokenizer"},
    {"*config*.json", "metadata"},      {"*.index.json", "metadata"},
    {"*.weights.json", "metadata"},     {"metadata.json", "metadata"},
};

LeafKind kind_of(std::string_view type) { return kind_from_name(type).value_or(LeafKind::kOther); }

}  // namespace

std::string_view type_of_file(std::string_view name) {
  for (const NamePattern& known : kPatterns) {
    if (glob_match(known.pattern, name)) return known.type;
  }
  return "other";
}

Result<std::vector<AuditedFile>> other_files(const std::string& directory,
                                             const std::vector<AuditedFile>& known) {
  std::set<std::string_view> paths;
  for (const AuditedFile& file : known) paths.insert(file.path);
  std::vector<AuditedFile> out;
  std::error_code error;
  fs::recursive_directory_iterator at(directory, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at.depth() >= kMostLevels || out.size() >= kMostFiles) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: more than {} levels of directories or {} files",
                              printable(directory), kMostLevels, kMostFiles));
    }
    std::error_code ignored;
    if (!at->is_regular_file(ignored)) continue;
    const std::string path = at->path().lexically_relative(directory).string();
    if (paths.contains(path)) continue;
    const std::string type(type_of_file(base_name(path)));
    const uint64_t bytes = at->file_size(ignored);
    if (ignored) {
      return fail(ErrorCode::kIo, fmt::format("{}/{}: {}", printable(directory), printable(path),
                                              ignored.message()));
    }
    out.push_back({path, bytes, type});
  }
  if (error) {
    return fail(ErrorCode::kIo, fmt::format("{}: {}", printable(directory), error.message()));
  }
  std::ranges::sort(out, {}, &AuditedFile::path);
  return out;
}

Leaf whole_file(const AuditedFile& file, uint32_t index) {
  return Leaf{.file = index,
              .bytes = file.bytes,
              .kind = kind_of(file.type),
              .name = file.path,
              .component = "files"};
}

}  // namespace ferry::audit
