#include "dialects/keras/keras_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kShardSuffix = ".weights.h5";
constexpr size_t kLeastDigits = 5;
constexpr size_t kMaxDigits = 8;
constexpr size_t kMaxShownKerasName = 60;
// f64 does not hold larger integers exactly.
constexpr double kMaxTotal = 9007199254740992.0;

std::optional<uint64_t> shard_number(std::string_view file, std::string_view base) {
  if (!file.starts_with(base) || !file.ends_with(kShardSuffix)) return std::nullopt;
  if (file.size() < base.size() + 1 + kLeastDigits + kShardSuffix.size()) return std::nullopt;
  file.remove_prefix(base.size());
  file.remove_suffix(kShardSuffix.size());
  if (file[0] != '_' || file.size() > 1 + kMaxDigits) return std::nullopt;
  uint64_t number = 0;
  const char* end = file.data() + file.size();
  const auto [stop, error] = std::from_chars(file.data() + 1, end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

Status add_file(const nlohmann::json& value, const std::string& group, const std::string& name,
                std::vector<std::string>& files) {
  const auto bad = [&](std::string_view what) {
    return bad_input(fmt::format("{}: {} (group {})", name, what, quoted(group, 160)));
  };
  if (!value.is_string()) return bad("a value in 'weight_map' that is not a file name");
  const std::string& file = value.get_ref<const std::string&>();
  if (!is_index_file_name(file)) {
    return bad(
        fmt::format("the file {} is not a plain file name", quoted(file, kMaxShownKerasName)));
  }
  if (!file.ends_with(kShardSuffix)) {
    return bad(fmt::format("the file {} does not end in {}", quoted(file, kMaxShownKerasName),
                           kShardSuffix));
  }
  files.push_back(file);
  return {};
}

uint64_t total_of(const nlohmann::json& document) {
  const auto metadata = document.find("metadata");
  if (metadata == document.end() || !metadata->is_object()) return 0;
  const auto total = metadata->find("total_size");
  if (total == metadata->end() || !total->is_number()) return 0;
  const double bytes = total->get<double>();
  return bytes >= 0 && bytes < kMaxTotal ? static_cast<uint64_t>(bytes) : 0;
}

}  // namespace

Result<KerasIndex> parse_keras_index(std::string_view json, const std::string& name) {
  const nlohmann::json document = FERRY_TRY(parse_json(json, name));
  const auto map = document.is_object() ? document.find("weight_map") : document.end();
  if (!document.is_object() || map == document.end() || !map->is_object() || map->empty()) {
    return bad_input(fmt::format("{}: the index has no object 'weight_map' with entries", name));
  }
  KerasIndex index;
  index.total_bytes = total_of(document);
  for (const auto& [key, value] : map->items()) {
    const std::string group = key.starts_with('/') ? key.substr(1) : key;
    auto [place, is_new] = index.files_of.try_emplace(group);
    if (!is_new) {
      return bad_input(
          fmt::format("{}: the index lists a group twice (group {})", name, quoted(group, 160)));
    }
    if (!value.is_array()) {
      FERRY_RETURN_IF_ERROR(add_file(value, group, name, place->second));
      continue;
    }
    for (const nlohmann::json& item : value) {
      FERRY_RETURN_IF_ERROR(add_file(item, group, name, place->second));
    }
  }
  return index;
}

bool is_keras_shard(std::string_view file, std::string_view base) {
  return shard_number(file, base).has_value();
}

Result<std::vector<std::string>> keras_shards(const KerasIndex& index, const std::string& base,
                                              const std::vector<std::string>& present,
                                              const std::string& name) {
  std::set<std::string> files(present.begin(), present.end());
  std::set<uint64_t> numbers;
  for (const auto& [group, names] : index.files_of) {
    for (const std::string& file : names) {
      // Keras writes no other names, and a file of another name in the directory would go
      // unnoticed.
      const bool here = is_keras_shard(file, base) && files.contains(file);
      if (here) continue;
      return bad_input(
          fmt::format("{}: the file {} is missing, or not one of {}_NUMBER{} (group {})", name,
                      quoted(file, kMaxShownKerasName), quoted(base, kMaxShownKerasName),
                      kShardSuffix, quoted(group, 160)));
    }
  }
  for (const std::string& file : files) numbers.insert(shard_number(file, base).value_or(0));
  if (numbers.size() != files.size()) {
    return bad_input(fmt::format("{}: two files have the same number", name));
  }
  uint64_t expected = 0;
  for (const uint64_t number : numbers) {
    if (number != expected) {
      return bad_input(fmt::format("{}: file {} of the checkpoint is missing, but file {} is there",
                                   name, expected, number));
    }
    ++expected;
  }
  return std::vector<std::string>(files.begin(), files.end());
}

Status check_against_keras_index(const KerasIndex& index, const Hdf5File& opened,
                                 const std::string& name) {
  std::set<std::pair<std::string_view, std::string_view>> held;  // group, file
  const TensorSource& source = *opened.source;
  uint64_t bytes = opened.attributes.optimizer_bytes;
  for (const TensorEntry& entry : source.entries()) {
    const size_t slash = std::min(entry.name.rfind('/'), entry.name.size());
    held.emplace(std::string_view(entry.name).substr(0, slash), source.files()[entry.file].name);
    bytes += entry.bytes;
  }
  for (const auto& [group, files] : index.files_of) {
    if (group.starts_with("optimizer/")) continue;
    for (const std::string& file : files) {
      if (held.contains({group, file})) continue;
      return bad_input(fmt::format("{}: {} has no tensor of the group (group {})", name,
                                   quoted(file, kMaxShownKerasName), quoted(group, 160)));
    }
  }
  if (bytes < index.total_bytes) {
    return bad_input(fmt::format("{}: the files hold {} bytes of tensors, the index says {}", name,
                                 bytes, index.total_bytes));
  }
  return {};
}

}  // namespace ferry::formats
