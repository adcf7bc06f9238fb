#include "formats/checkpoint_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/text.h"

namespace ferry::formats {

std::vector<CheckpointFile> one_file(InputFile file, std::string name) {
  std::vector<CheckpointFile> files;
  files.push_back({std::move(file), std::move(name)});
  return files;
}

bool is_index_file_name(std::string_view name) {
  constexpr size_t kMaxBytes = 255;
  if (name.empty() || name.size() > kMaxBytes || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

Status check_unique_names(const TensorSource& source) {
  std::unordered_map<std::string_view, uint32_t> file_of;
  for (const TensorEntry& entry : source.entries()) {
    const auto [other, is_new] = file_of.emplace(entry.name, entry.file);
    if (is_new) continue;
    const auto name_of = [&](uint32_t file) { return printable(source.files()[file].name); };
    return bad_input(fmt::format("{}: in {} as well as in {} (tensor {})", printable(source.path()),
                                 name_of(other->second), name_of(entry.file), quoted(entry.name)));
  }
  return {};
}

}  // namespace ferry::formats
