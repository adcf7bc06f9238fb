#include "dialects/gguf/file/split.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kNumber = "split.no", kCount = "split.count",
                           kTensors = "split.tensors.count";
constexpr int64_t kMostFiles = 65535;  // the key is a u16

// Returns "m" for "m-00001-of-00003.gguf"; an empty text where the name is another one.
std::string stem_of(const std::string& name, size_t number, size_t count) {
  const std::string end = gguf_part_name("", number, count);
  if (!name.ends_with(end) || name.size() == end.size()) return {};
  return name.substr(0, name.size() - end.size());
}

}  // namespace

Result<std::optional<GgufSplit>> gguf_split_of(const GgufMetadata& metadata,
                                               const std::string& path) {
  if (metadata.find(kCount) == nullptr) return std::optional<GgufSplit>();
  GgufSplit split;
  split.count = FERRY_TRY(metadata.integer(kCount));
  if (split.count == 0 || split.count == 1) return std::optional<GgufSplit>();
  split.number = FERRY_TRY(metadata.integer(kNumber));
  split.tensors = FERRY_TRY(metadata.integer(kTensors));
  if (split.count < 0 || split.count > kMostFiles || split.number < 0 ||
      split.number >= split.count || split.tensors < 0) {
    return bad_input(fmt::format("{}: {} {}, {} {} and {} {} are of no split checkpoint",
                                 printable(path), kNumber, split.number, kCount, split.count,
                                 kTensors, split.tensors));
  }
  return std::optional(split);
}

Result<std::vector<std::string>> gguf_later_parts(const std::string& first, int64_t count) {
  const auto files = static_cast<size_t>(count);
  const std::string stem = stem_of(base_name(first), 1, files);
  if (stem.empty()) {
    return bad_input(
        fmt::format("{}: the first of {} files of a checkpoint, whose name does not "
                    "end in {}",
                    printable(first), count, gguf_part_name("", 1, files)));
  }
  std::vector<std::string> names;
  for (size_t i = 2; i <= files; ++i) names.push_back(gguf_part_name(stem, i, files));
  return names;
}

std::string gguf_part_name(const std::string& stem, size_t number, size_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

bool is_gguf_layout_key(std::string_view key) {
  return key == "general.alignment" || key == kNumber || key == kCount || key == kTensors;
}

bool is_gguf_split(const std::vector<std::string>& names) {
  const std::string stem = names.empty() ? std::string() : stem_of(names[0], 1, names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (stem.empty() || names[i] != gguf_part_name(stem, i + 1, names.size())) return false;
  }
  return !stem.empty();
}

}  // namespace ferry::formats
