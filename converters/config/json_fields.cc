#include "converters/config/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace ferry::converters {

using nlohmann::json;

const KeyNames* JsonFields::names_of(std::string_view key) const {
  const auto found = std::ranges::find(names_, key, &KeyNames::key);
  return found == names_.end() ? nullptr : &*found;
}

const json* JsonFields::stated(std::string_view key) const {
  const auto look_up = [&](std::string_view name) -> const json* {
    if (log_ != nullptr) log_->insert(path_ + std::string(name));
    const auto it = object_->find(name);
    return it == object_->end() ? nullptr : &*it;
  };
  const KeyNames* names = names_of(key);
  if (names == nullptr) return look_up(key);
  const json* found = nullptr;
  for (const std::string_view name : names->stated) {
    if (name.empty()) continue;
    const json* value = look_up(name);
    if (found == nullptr) found = value;
  }
  return found;
}

std::string_view JsonFields::shown_name(std::string_view key) const {
  const KeyNames* names = names_of(key);
  if (names == nullptr) return key;
  for (const std::string_view name : names->stated) {
    if (!name.empty() && object_->contains(name)) return name;
  }
  return names->stated[0].empty() ? key : names->stated[0];
}

size_t JsonFields::size() const { return object_->size(); }

bool JsonFields::states(std::string_view key) const { return stated(key) != nullptr; }

const json* JsonFields::find(std::string_view key) const {
  const json* value = stated(key);
  if (value == nullptr && defaults_ != nullptr) {
    const auto it = defaults_->find(key);
    if (it != defaults_->end()) value = &*it;
  }
  return value == nullptr || value->is_null() ? nullptr : value;
}

Failure JsonFields::error(ErrorCode code, std::string_view key, std::string_view what) const {
  return fail(code,
              fmt::format("{}: {} {}", name_, quoted(path_ + std::string(shown_name(key))), what));
}

Failure JsonFields::bad(std::string_view key, std::string_view what) const {
  return error(ErrorCode::kBadInput, key, what);
}

Result<int64_t> JsonFields::checked_integer(const json& value, std::string_view key,
                                            IntRange range) const {
  if (!value.is_number_integer()) return bad(key, "is not an integer");
  // An unsigned value over 2^63 would turn negative.
  const bool large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t n = large ? INT64_MAX : value.get<int64_t>();
  if (n >= range.min && n <= range.max) return n;
  return bad(key, fmt::format("is {}, not from {} to {}", value.dump(), range.min, range.max));
}

Result<std::optional<int64_t>> JsonFields::integer(std::string_view key, IntRange range) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  return FERRY_TRY(checked_integer(*value, key, range));
}

Result<std::optional<double>> JsonFields::number(std::string_view key, FloatRange range) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  return FERRY_TRY(checked_number(*value, key, range));
}

Result<double> JsonFields::checked_number(const json& value, std::string_view key,
                                          FloatRange range) const {
  if (!value.is_number()) return bad(key, "is not a number");
  const double x = value.get<double>();
  if (x >= range.min && x <= range.max) return x;
  return bad(key, fmt::format("is {}, not from {} to {}", x, range.min, range.max));
}

Result<std::optional<bool>> JsonFields::flag(std::string_view key) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) return bad(key, "is not true or false");
  return value->get<bool>();
}

Result<std::optional<std::string>> JsonFields::text(std::string_view key) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) return bad(key, "is not a string");
  return value->get<std::string>();
}

Result<int64_t> JsonFields::required(std::string_view key, IntRange range) const {
  const auto value = FERRY_TRY(integer(key, range));
  if (!value) return bad(key, "is missing");
  return *value;
}

Result<int64_t> JsonFields::integer_or(std::string_view key, IntRange range,
                                       int64_t otherwise) const {
  return FERRY_TRY(integer(key, range)).value_or(otherwise);
}

Result<double> JsonFields::number_or(std::string_view key, FloatRange range,
                                     double otherwise) const {
  return FERRY_TRY(number(key, range)).value_or(otherwise);
}

Result<bool> JsonFields::flag_or(std::string_view key, bool otherwise) const {
  return FERRY_TRY(flag(key)).value_or(otherwise);
}

Result<std::optional<std::vector<int64_t>>> JsonFields::integers(std::string_view key,
                                                                 IntRange range) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  std::vector<int64_t> list;
  if (!value->is_array()) {
    list.push_back(FERRY_TRY(checked_integer(*value, key, range)));
    return list;
  }
  for (const json& item : *value) list.push_back(FERRY_TRY(checked_integer(item, key, range)));
  return list;
}

Result<std::optional<std::vector<double>>> JsonFields::numbers(std::string_view key,
                                                               FloatRange range) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_array()) return bad(key, "is not a list of numbers");
  std::vector<double> list;
  for (const json& item : *value) list.push_back(FERRY_TRY(checked_number(item, key, range)));
  return list;
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view key) const {
  const json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_object()) return bad(key, "is not an object");
  JsonFields inside(*value, name_, path_ + std::string(shown_name(key)) + ".");
  inside.log_ = log_;
  return inside;
}

JsonFields JsonFields::item(const json& item, std::string_view place) const {
  JsonFields inside(item, name_, path_ + std::string(place) + ".");
  inside.log_ = log_;
  return inside;
}

Result<std::optional<JsonFields>> JsonFields::object_or_default(std::string_view key) const {
  if (auto stated_object = FERRY_TRY(object(key))) return stated_object;
  if (defaults_ == nullptr || !defaults_->contains(key)) return std::nullopt;
  return JsonFields((*defaults_)[key], name_, path_ + std::string(key) + ".");
}

std::vector<std::string> unused_keys(const json& object, const std::string& path, const KeyLog& log,
                                     bool (*is_inert)(std::string_view)) {
  std::vector<std::string> unused;
  for (const auto& [key, value] : object.items()) {
    const std::string at = path + key;
    if (value.is_null()) continue;
    const auto below = log.upper_bound(at + ".");
    const bool opened = below != log.end() && below->starts_with(at + ".") && value.is_object();
    if (!opened) {
      if (!log.contains(at) && !is_inert(key)) unused.push_back(at);
      continue;
    }
    for (std::string& inside : unused_keys(value, at + ".", log, is_inert)) {
      unused.push_back(std::move(inside));
    }
  }
  return unused;
}

}  // namespace ferry::converters
