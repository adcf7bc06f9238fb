#include "formats/safetensors/index.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/json.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"

namespace ferry::formats {
namespace {

constexpr size_t kMaxShownIndexName = 60;

Status check_file_name(const std::string& file, const std::string& tensor, const std::string& name,
                       std::string_view suffix) {
  const auto message = [&](std::string_view what) {
    return fmt::format("{}: the file {} {} (tensor {})", name, quoted(file, kMaxShownIndexName),
                       what, quoted(tensor));
  };
  if (!is_index_file_name(file)) return bad_input(message("is not a plain file name"));
  if (file.ends_with(suffix)) return {};
  if (file.ends_with(".json")) return bad_input(message("cannot hold tensors"));
  return fail(ErrorCode::kUnsupported, message(fmt::format("does not end in {}", suffix)));
}

// Makes one error of all differences: the first is the message, and all are the details.
Status summarize(std::vector<std::string> problems, const std::string& name) {
  if (problems.empty()) return {};
  Error error{ErrorCode::kBadInput, fmt::format("{}: {}", name, problems.front())};
  if (problems.size() > 1) {
    error.message += fmt::format(" and {} more", problems.size() - 1);
    error.details = std::move(problems);
  }
  return Failure(std::move(error));
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& name,
                                     std::string_view suffix) {
  const nlohmann::json document = FERRY_TRY(parse_json(text, name));
  const auto bad = [&](std::string_view what) {
    return bad_input(fmt::format("{}: {}", name, what));
  };
  if (!document.is_object()) return bad("the index is not a JSON object");
  const auto weight_map = document.find("weight_map");
  if (weight_map == document.end() || !weight_map->is_object()) {
    return bad("the index has no object 'weight_map'");
  }
  if (weight_map->empty()) return bad("'weight_map' is empty");

  ShardIndex index;
  std::unordered_map<std::string, std::string> by_lower_case;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string()) {
      return bad(
          fmt::format("the value in 'weight_map' is not a string (tensor {})", quoted(tensor)));
    }
    const std::string& file_name = file.get_ref<const std::string&>();
    FERRY_RETURN_IF_ERROR(check_file_name(file_name, tensor, name, suffix));
    const auto& known = by_lower_case.emplace(lower_case(file_name), file_name).first->second;
    if (known != file_name) {
      return bad(fmt::format("the files {} and {} differ only by case (tensor {})",
                             quoted(known, kMaxShownIndexName),
                             quoted(file_name, kMaxShownIndexName), quoted(tensor)));
    }
    index.emplace(tensor, file_name);
  }
  return index;
}

Status check_against_index(const ShardIndex& index, const TensorSource& source,
                           const std::string& name) {
  std::vector<std::string> problems;
  std::unordered_map<std::string_view, bool> found;
  for (const TensorEntry& entry : source.entries()) {
    const std::string& file = source.files()[entry.file].name;
    found[entry.name] = true;
    const auto item = index.find(entry.name);
    if (item == index.end()) {
      problems.push_back(fmt::format("the index does not name a tensor of {} (tensor {})",
                                     quoted(file, kMaxShownIndexName), quoted(entry.name)));
    } else if (item->second != file) {
      problems.push_back(fmt::format("in {}, but the index says {} (tensor {})",
                                     quoted(file, kMaxShownIndexName),
                                     quoted(item->second, kMaxShownIndexName), quoted(entry.name)));
    }
  }
  for (const auto& [tensor, file] : index) {
    if (found.contains(tensor)) continue;
    problems.push_back(
        fmt::format("not in {} (tensor {})", quoted(file, kMaxShownIndexName), quoted(tensor)));
  }
  return summarize(std::move(problems), name);
}

}  // namespace ferry::formats
