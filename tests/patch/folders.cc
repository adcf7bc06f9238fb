#include "tests/patch/folders.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

namespace ferry {
namespace fs = std::filesystem;

std::string safetensors_of(const std::vector<std::pair<std::string, std::string>>& tensors) {
  nlohmann::ordered_json header;
  size_t at = 0;
  std::string data;
  for (const auto& [name, bytes] : tensors) {
    header[name] = {
        {"dtype", "U8"}, {"shape", {bytes.size()}}, {"data_offsets", {at, at + bytes.size()}}};
    at += bytes.size();
    data += bytes;
  }
  const std::string text = header.dump();
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  return file + text + data;
}

std::string noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

PatchTrial::PatchTrial(const FolderContents& old, const FolderContents& made) {
  for (const auto& [name, bytes] : old) dir_.write("old/" + name, bytes);
  for (const auto& [name, bytes] : made) dir_.write("new/" + name, bytes);
}

Result<patch::PatchSummary> PatchTrial::make(size_t threads) {
  ThreadPool pool(threads);
  return patch::make_patch(old_folder(), new_folder(), patch(), /*overwrite=*/true, pool, {});
}

Result<patch::AppliedPatch> PatchTrial::apply(const patch::ApplyOptions& more) {
  ThreadPool pool(2);
  fs::remove_all(output());
  patch::ApplyOptions options = more;
  if (!options.in_place) options.output = output();
  return patch::apply_patch(old_folder(), patch(), options, pool);
}

std::vector<std::string> PatchTrial::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir_.path())) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace ferry
