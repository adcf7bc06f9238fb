#include "patch/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/directory.h"
#include "core/text.h"
#include "formats/safetensors/safetensors.h"
#include "packer/manifest.h"
#include "patch/patch_file.h"

namespace ferry::patch {
namespace {

using FilesByName = std::map<std::string_view, uint32_t>;

Status add_manifest(Folder& folder, const FilesByName& files) {
  const auto found = files.find(packer::kManifestName);
  if (found == files.end()) return {};
  const InputFile& file = folder.files[found->second].file;
  const std::string text = FERRY_TRY(read_text(file, packer::kMaxManifestBytes));
  packer::Manifest manifest = FERRY_TRY(packer::read_manifest(text, file.path()));
  for (packer::ManifestTensor& tensor : manifest.tensors) {
    const auto holder = files.find(tensor.file);
    if (holder == files.end() || tensor.bytes == 0) continue;
    if (!range_inside(tensor.offset, tensor.bytes, folder.files[holder->second].file.size())) {
      return bad_input(fmt::format("{}: tensor {} lies outside of {}", printable(file.path()),
                                   quoted(tensor.name), quoted(tensor.file)));
    }
    folder.tensors.push_back({std::move(tensor.name), std::move(tensor.sha256), holder->second,
                              tensor.offset, tensor.bytes, tensor.dtype, std::move(tensor.shape)});
  }
  return {};
}

// A file that is not valid is one of bytes without tensors.
Status add_safetensors(Folder& folder, uint32_t index) {
  const InputFile& file = folder.files[index].file;
  std::vector<std::byte> start(std::min<uint64_t>(file.size(), 64));
  FERRY_RETURN_IF_ERROR(file.read_at(0, start));
  const auto length = formats::safetensors_header_bytes(start, file.size(), file.path());
  if (!length) return {};
  std::vector<std::byte> json(*length);
  FERRY_RETURN_IF_ERROR(file.read_at(formats::kSafetensorsPrefixBytes, json));
  auto entries = formats::parse_safetensors_header(json, file.size(), file.path());
  if (!entries) return {};
  for (TensorEntry& entry : *entries) {
    if (entry.bytes == 0) continue;
    folder.tensors.push_back({std::move(entry.name),
                              {},
                              index,
                              entry.offset,
                              entry.bytes,
                              entry.dtype,
                              std::move(entry.shape)});
  }
  return {};
}

// Several names may stand for one range: the first of them is kept. Ranges that overlap otherwise
// are left out too.
void sort_tensors(std::vector<TensorRange>& tensors) {
  std::ranges::stable_sort(tensors, {}, [](const TensorRange& tensor) {
    return std::tuple(tensor.file, tensor.offset);
  });
  std::vector<TensorRange> kept;
  for (TensorRange& tensor : tensors) {
    const bool overlaps = !kept.empty() && kept.back().file == tensor.file &&
                          kept.back().offset + kept.back().bytes > tensor.offset;
    if (!overlaps) kept.push_back(std::move(tensor));
  }
  tensors = std::move(kept);
}

}  // namespace

uint8_t TensorRange::width() const {
  const int bits = dtype_bits(dtype);
  const bool whole = bits == 16 || bits == 32 || bits == 64;
  const auto size = static_cast<uint8_t>(whole ? bits / 8 : 1);
  return bytes % size == 0 ? size : uint8_t{1};
}

uint64_t Folder::bytes() const {
  uint64_t sum = 0;
  for (const FolderFile& file : files) sum += file.file.size();
  return sum;
}

Result<Folder> open_folder(const std::string& path) {
  const Directory directory = FERRY_TRY(Directory::open(path));
  const std::vector<std::string> names = FERRY_TRY(directory.names());
  if (names.empty()) return bad_input(fmt::format("{}: has no files", printable(path)));
  if (names.size() > kMaxFiles) {
    return bad_input(
        fmt::format("{}: {} files, more than {}", printable(path), names.size(), kMaxFiles));
  }
  // A bundle has no links. A checkpoint in a cache consists of links to files.
  const bool is_bundle = std::ranges::find(names, packer::kManifestName) != names.end();
  const auto links = is_bundle ? InputFile::Links::kRefuse : InputFile::Links::kFollow;
  Folder folder;
  folder.path = path;
  for (const std::string& name : names) {
    InputFile file = FERRY_TRY(directory.open_file(name, name, links));
    folder.files.push_back({name, std::move(file)});
  }
  FilesByName by_name;
  for (uint32_t i = 0; i < folder.files.size(); ++i) by_name.emplace(folder.files[i].name, i);
  FERRY_RETURN_IF_ERROR(add_manifest(folder, by_name));
  for (uint32_t i = 0; i < folder.files.size(); ++i) {
    if (!folder.files[i].name.ends_with(".safetensors")) continue;
    FERRY_RETURN_IF_ERROR(add_safetensors(folder, i));
  }
  sort_tensors(folder.tensors);
  return folder;
}

}  // namespace ferry::patch
