#include "formats/file_tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::formats {

Status FileTensorSource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index >= entries_.size() || !range_inside(offset, out.size(), entries_[index].bytes)) {
    return fail(ErrorCode::kInternal,
                fmt::format("{}: read outside of a tensor", printable(path_)));
  }
  if (out.empty()) return {};
  FERRY_RETURN_IF_ERROR(read_entry(index, offset, out));
  return input(entries_[index].file).check_unchanged();
}

Status FileTensorSource::check_unchanged() const {
  for (const auto& file : inputs_) FERRY_RETURN_IF_ERROR(file->check_unchanged());
  return {};
}

Result<std::string> FileTensorSource::state() const {
  std::string text;
  for (size_t i = 0; i < files_.size(); ++i) {
    const std::string state = FERRY_TRY(state_of(*inputs_[i]));
    text += fmt::format("{}: {}\n", printable(files_[i].name), state);
  }
  return text;
}

uint32_t FileTensorSource::add_file(std::string name, std::unique_ptr<InputFile> file,
                                    std::vector<std::byte> header) {
  files_.push_back({std::move(name), file->size(), std::move(header)});
  inputs_.push_back(std::move(file));
  return static_cast<uint32_t>(files_.size() - 1);
}

Status FileTensorSource::read_entry(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const TensorEntry& entry = entries_[index];
  return input(entry.file).read_at(entry.offset + offset, out);
}

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
