#include "dialects/gguf/file/metadata.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr std::array<GgufValueTypeInfo, 13> kValueTypes = {{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

constexpr size_t kMaxShownKey = 80;

const GgufValueTypeInfo& info_of(const GgufItem& item) {
  return kValueTypes[static_cast<size_t>(item.type)];
}

}  // namespace

const GgufValueTypeInfo* find_gguf_value_type(uint32_t id) {
  return id < kValueTypes.size() ? &kValueTypes[id] : nullptr;
}

GgufMetadata::GgufMetadata(std::vector<GgufItem> items, std::span<const std::byte> header,
                           std::string name)
    : items_(std::move(items)), header_(header), name_(std::move(name)) {
  for (size_t i = 0; i < items_.size(); ++i) index_of_.emplace(items_[i].key, i);
}

const GgufItem* GgufMetadata::find(std::string_view key) const {
  const auto it = index_of_.find(key);
  return it == index_of_.end() ? nullptr : &items_[it->second];
}

Failure GgufMetadata::wrong(const GgufItem& item, std::string_view kind) const {
  return bad_input(fmt::format("{}: not {}, but {}{} (key {})", name_, kind,
                               item.is_array ? "an array of " : "", info_of(item).name,
                               quoted(item.key, kMaxShownKey)));
}

Result<const GgufItem*> GgufMetadata::get(std::string_view key, bool is_array,
                                          std::string_view kind) const {
  const GgufItem* item = find(key);
  if (item == nullptr) {
    return bad_input(
        fmt::format("{}: not in the metadata (key {})", name_, quoted(key, kMaxShownKey)));
  }
  if (item->is_array != is_array) return wrong(*item, kind);
  return item;
}

template <class T>
T GgufMetadata::load(uint64_t offset) const {
  T value;
  std::memcpy(&value, header_.data() + offset, sizeof value);
  return value;
}

std::span<const std::byte> GgufMetadata::stored(const GgufItem& item) const {
  // A value is preceded by its type; an array also by the type and the number of its elements.
  const uint64_t before = item.is_array ? 16 : 4;
  uint64_t end = item.offset;
  if (item.type == GgufValueType::kString) {
    for (uint64_t i = 0; i < item.count; ++i) end += sizeof(uint64_t) + load<uint64_t>(end);
  } else {
    end += item.count * info_of(item).bytes;
  }
  return header_.subspan(item.offset - before, end - item.offset + before);
}

std::string_view GgufMetadata::load_text(uint64_t offset) const {
  const auto* start = reinterpret_cast<const char*>(header_.data()) + offset + sizeof(uint64_t);
  return {start, load<uint64_t>(offset)};
}

std::optional<int64_t> GgufMetadata::load_integer(const GgufItem& item, uint64_t index) const {
  const uint64_t at = item.offset + index * info_of(item).bytes;
  switch (item.type) {
    case GgufValueType::kU8:
      return load<uint8_t>(at);
    case GgufValueType::kI8:
      return load<int8_t>(at);
    case GgufValueType::kU16:
      return load<uint16_t>(at);
    case GgufValueType::kI16:
      return load<int16_t>(at);
    case GgufValueType::kU32:
      return load<uint32_t>(at);
    case GgufValueType::kI32:
      return load<int32_t>(at);
    case GgufValueType::kI64:
      return load<int64_t>(at);
    case GgufValueType::kU64: {
      const auto value = load<uint64_t>(at);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufMetadata::load_real(const GgufItem& item, uint64_t index) const {
  const uint64_t at = item.offset + index * info_of(item).bytes;
  if (item.type == GgufValueType::kF32) return load<float>(at);
  if (item.type == GgufValueType::kF64) return load<double>(at);
  return std::nullopt;
}

std::optional<bool> GgufMetadata::load_bool(const GgufItem& item, uint64_t index) const {
  if (item.type != GgufValueType::kBool) return std::nullopt;
  return load<uint8_t>(item.offset + index) != 0;
}

template <class T>
Result<T> GgufMetadata::get_one(std::string_view key, std::string_view kind, Load<T> pick) const {
  const GgufItem* item = FERRY_TRY(get(key, false, kind));
  const std::optional<T> value = (this->*pick)(*item, 0);
  if (!value) return wrong(*item, kind);
  return *value;
}

template <class T>
Result<std::vector<T>> GgufMetadata::get_all(std::string_view key, std::string_view kind,
                                             Load<T> pick) const {
  const GgufItem* item = FERRY_TRY(get(key, true, kind));
  std::vector<T> out;
  for (uint64_t i = 0; i < item->count; ++i) {
    const std::optional<T> value = (this->*pick)(*item, i);
    if (!value) return wrong(*item, kind);
    out.push_back(*value);
  }
  return out;
}

Result<int64_t> GgufMetadata::integer(std::string_view key) const {
  return get_one(key, "an integer below 2^63", &GgufMetadata::load_integer);
}

Result<double> GgufMetadata::real(std::string_view key) const {
  return get_one(key, "a float", &GgufMetadata::load_real);
}

Result<bool> GgufMetadata::boolean(std::string_view key) const {
  return get_one(key, "a bool", &GgufMetadata::load_bool);
}

Result<std::vector<int64_t>> GgufMetadata::integers(std::string_view key) const {
  return get_all(key, "an array of integers below 2^63", &GgufMetadata::load_integer);
}

Result<std::vector<double>> GgufMetadata::reals(std::string_view key) const {
  return get_all(key, "an array of floats", &GgufMetadata::load_real);
}

Result<std::string_view> GgufMetadata::text(std::string_view key) const {
  constexpr std::string_view kKind = "a string";
  const GgufItem* item = FERRY_TRY(get(key, false, kKind));
  if (item->type != GgufValueType::kString) return wrong(*item, kKind);
  return load_text(item->offset);
}

Result<std::vector<std::string_view>> GgufMetadata::texts(std::string_view key) const {
  constexpr std::string_view kKind = "an array of strings";
  const GgufItem* item = FERRY_TRY(get(key, true, kKind));
  if (item->type != GgufValueType::kString) return wrong(*item, kKind);
  std::vector<std::string_view> out;
  out.reserve(item->count);
  uint64_t at = item->offset;
  for (uint64_t i = 0; i < item->count; ++i) {
    out.push_back(load_text(at));
    at += sizeof(uint64_t) + out.back().size();
  }
  return out;
}

// Reads a value of any type but a string.
nlohmann::json GgufMetadata::load_json(const GgufItem& item, uint64_t index) const {
  if (const auto flag = load_bool(item, index)) return *flag;
  if (const auto integer = load_integer(item, index)) return *integer;
  if (item.type == GgufValueType::kU64) return load<uint64_t>(item.offset + index * 8);
  const double value = *load_real(item, index);
  if (item.type != GgufValueType::kF32 || !std::isfinite(value)) return value;
  std::array<char, 32> text;
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), static_cast<float>(value));
  double shortest = value;
  if (error == std::errc()) std::from_chars(text.data(), end, shortest);
  return shortest;
}

Result<nlohmann::json> GgufMetadata::to_json() const {
  nlohmann::json out = nlohmann::json::object();
  uint64_t elements = 0;
  for (const GgufItem& item : items_) {
    if (item.type == GgufValueType::kString && !item.is_array) {
      out[item.key] = load_text(item.offset);
      continue;
    }
    if (!item.is_array) {
      out[item.key] = load_json(item, 0);
      continue;
    }
    elements += item.count;  // cannot overflow: all elements lie within the header
    if (elements > kMaxJsonElements) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: more than {} elements in the arrays of the metadata (key {})",
                              name_, kMaxJsonElements, quoted(item.key, kMaxShownKey)));
    }
    nlohmann::json& list = out[item.key] = nlohmann::json::array();
    if (item.type == GgufValueType::kString) {
      for (const std::string_view text : FERRY_TRY(texts(item.key))) list.push_back(text);
    } else {
      for (uint64_t i = 0; i < item.count; ++i) list.push_back(load_json(item, i));
    }
  }
  return out;
}

}  // namespace ferry::formats
