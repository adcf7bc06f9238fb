#include "checkpoint/path_hints.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

namespace ferry::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRevisionBytes = 256;

bool is_plain_name(std::string_view name) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !name.empty() && !name.starts_with('.') && std::ranges::all_of(name, fits);
}

// The revision that refs/main names, or an empty string.
std::string main_revision(const std::string& directory) {
  const std::string file = directory + "/refs/main";
  const Result<InputFile> opened = InputFile::open(file, InputFile::Links::kRefuse);
  if (!opened) return {};
  Result<std::string> text = read_text(*opened, kMaxRevisionBytes);
  if (!text) return {};
  std::erase_if(*text, [](unsigned char c) { return std::isspace(c) != 0; });
  return is_plain_name(*text) ? *text : std::string();
}

}  // namespace

std::string snapshot_of_cache_entry(const std::string& directory) {
  const std::string snapshots = directory + (directory.ends_with('/') ? "" : "/") + "snapshots";
  std::error_code error;
  std::vector<std::string> revisions;
  for (fs::directory_iterator it(snapshots, error), end; !error && it != end; it.increment(error)) {
    revisions.push_back(it->path().filename().string());
  }
  if (error || revisions.empty()) return {};
  const std::string main = main_revision(directory);
  if (std::ranges::count(revisions, main) > 0) return snapshots + "/" + main;
  return snapshots + "/" + (revisions.size() == 1 ? revisions.front() : "REVISION");
}

bool looks_like_hub_id(const std::string& path) {
  const size_t slash = path.find('/');
  return slash != std::string::npos && is_plain_name(std::string_view(path).substr(0, slash)) &&
         is_plain_name(std::string_view(path).substr(slash + 1));
}

Result<bool> may_be_safetensors(const InputFile& file) {
  constexpr size_t kLengthBytes = 8;
  std::array<std::byte, kLengthBytes + 1> start;
  if (file.size() < start.size()) return false;
  FERRY_RETURN_IF_ERROR(file.read_at(0, start));
  return start.back() == std::byte{'{'};
}

}  // namespace ferry::checkpoint
