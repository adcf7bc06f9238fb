// The key/value pairs of a GGUF file, by type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::formats {

// The numbers are those of the format.
enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufValueTypeInfo {
  std::string_view name;  // "u32"
  uint32_t bytes;         // 0 for strings and arrays
};
// Returns nullptr where the format has no such type.
const GgufValueTypeInfo* find_gguf_value_type(uint32_t id);

struct GgufItem {
  std::string key;     // unique, printable
  GgufValueType type;  // type of the value, or of the elements of an array; never kArray
  bool is_array = false;
  uint64_t count = 1;   // number of elements; all of them lie within the header
  uint64_t offset = 0;  // offset of the value, or of the first element, in the header
};

// The pairs of a file. Values are converted when they are asked for. kBadInput where a key is
// absent, or its value has another kind or does not fit.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  // `items` have been checked against `header`, which must outlive this object.
  GgufMetadata(std::vector<GgufItem> items, std::span<const std::byte> header, std::string name);

  const std::vector<GgufItem>& items() const { return items_; }  // in file order
  const GgufItem* find(std::string_view key) const;
  // Returns the type and the value of an item, as the file has them. The result is a view of the
  // header.
  std::span<const std::byte> stored(const GgufItem& item) const;

  Result<int64_t> integer(std::string_view key) const;  // value of any integer type
  Result<double> real(std::string_view key) const;      // value of type f32 or f64
  Result<bool> boolean(std::string_view key) const;     // any byte but 0 is true
  // Returns any bytes: the format says UTF-8, but tokens may be parts of characters. The results
  // are views of the header.
  Result<std::string_view> text(std::string_view key) const;
  Result<std::vector<int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> reals(std::string_view key) const;
  Result<std::vector<std::string_view>> texts(std::string_view key) const;

  // Returns all pairs as one object, a member per key, for code that knows no formats. Numbers of
  // type f32 are the shortest decimals that read back as the same f32; strings may be any bytes.
  // kUnsupported for more than kMaxJsonElements elements of arrays, which no model has.
  static constexpr uint64_t kMaxJsonElements = uint64_t{1} << 22;
  Result<nlohmann::json> to_json() const;

 private:
  // Reads one element of an item; nullopt where it has another kind.
  template <class T>
  using Load = std::optional<T> (GgufMetadata::*)(const GgufItem& item, uint64_t index) const;

  // Returns the item `key`, an array or not; `kind` describes it in messages.
  Result<const GgufItem*> get(std::string_view key, bool is_array, std::string_view kind) const;
  template <class T>
  Result<T> get_one(std::string_view key, std::string_view kind, Load<T> pick) const;
  template <class T>
  Result<std::vector<T>> get_all(std::string_view key, std::string_view kind, Load<T> pick) const;
  Failure wrong(const GgufItem& item, std::string_view kind) const;

  template <class T>
  T load(uint64_t offset) const;
  std::string_view load_text(uint64_t offset) const;
  std::optional<int64_t> load_integer(const GgufItem& item, uint64_t index) const;
  std::optional<double> load_real(const GgufItem& item, uint64_t index) const;
  std::optional<bool> load_bool(const GgufItem& item, uint64_t index) const;
  nlohmann::json load_json(const GgufItem& item, uint64_t index) const;

  std::vector<GgufItem> items_;
  std::map<std::string, size_t, std::less<>> index_of_;
  std::span<const std::byte> header_;
  std::string name_;
};

}  // namespace ferry::formats
