// The two directions of manifest.json: one description of the members (packer/manifest.cc) is
// walked by a ManifestWriter, which makes JSON of a struct, or by a ManifestReader, which fills a
// struct and remembers the first thing that is wrong. Both have the same member functions. Private
// to packer/.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"

namespace ferry::packer {

inline constexpr uint64_t kMaxManifestCount = uint64_t{1} << 62;
inline constexpr uint64_t kMaxManifestIndex = (uint64_t{1} << 31) - 1;
inline constexpr size_t kMaxManifestRank = 16;

using Choices = std::initializer_list<std::string_view>;

class ManifestWriter {
 public:
  explicit ManifestWriter(int64_t version) : version_(version) {}

  // Whether the document has the members that came with `version`.
  bool since(int64_t version) const { return version_ >= version; }

  void text(const char* name, const std::string& value) { out_[name] = value; }
  void choice(const char* name, const std::string& value, Choices) { out_[name] = value; }
  void file_name(const char* name, const std::string& value) { out_[name] = value; }
  void optional_file_name(const char* name, const std::string& value) { out_[name] = value; }
  void digest(const char* name, const std::string& value) { out_[name] = value; }
  void dtype(const char* name, DType value) { out_[name] = dtype_name(value); }
  void shape(const char* name, const Shape& value) { out_[name] = value; }
  void boolean(const char* name, bool value) { out_[name] = value; }
  void real(const char* name, double value) { out_[name] = value; }
  template <class T>
  void count(const char* name, T value) {
    out_[name] = value;
  }
  void index(const char* name, int32_t value) { out_[name] = value; }
  void optional_count(const char* name, const std::optional<int64_t>& value) {
    out_[name] = value ? Json(*value) : Json(nullptr);
  }
  void counts(const char* name, const std::vector<int64_t>& value) { out_[name] = value; }
  void texts(const char* name, const std::vector<std::string>& value) { out_[name] = value; }
  void file_names(const char* name, const std::vector<std::string>& value) { out_[name] = value; }

  // describe(archive, item) for each item.
  template <class T>
  void objects(const char* name, std::vector<T>& items) {
    Json list = Json::array();
    for (T& item : items) {
      ManifestWriter inner(version_);
      describe(inner, item);
      list.push_back(std::move(inner.out_));
    }
    out_[name] = std::move(list);
  }
  // null, or describe(archive, *item).
  template <class T>
  void optional_object(const char* name, std::optional<T>& item) {
    if (!item) {
      out_[name] = nullptr;
      return;
    }
    ManifestWriter inner(version_);
    describe(inner, *item);
    out_[name] = std::move(inner.out_);
  }
  template <class Body>
  void group(const char* name, const Body& body) {
    ManifestWriter inner(version_);
    body(inner);
    out_[name] = std::move(inner.out_);
  }

  // `text` of the document. Invalid UTF-8 is replaced: the manifest stays readable.
  std::string dump() const {
    return out_.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

 private:
  using Json = nlohmann::ordered_json;
  int64_t version_;
  Json out_ = Json::object();
};

class ManifestReader {
 public:
  using Json = nlohmann::json;

  // `where` is the path of `object` in a document of `version`; `error` receives the first problem.
  ManifestReader(const Json& object, std::string where, int64_t version, std::string& error);

  bool since(int64_t version) const { return version_ >= version; }

  void text(const char* name, std::string& value);
  void choice(const char* name, std::string& value, Choices choices);
  void file_name(const char* name, std::string& value);
  void optional_file_name(const char* name, std::string& value);
  void digest(const char* name, std::string& value);
  void dtype(const char* name, DType& value);
  void shape(const char* name, Shape& value);
  void boolean(const char* name, bool& value);
  void real(const char* name, double& value);
  template <class T>
  void count(const char* name, T& value) {
    if (const Json* json = member(name))
      value = static_cast<T>(number(name, *json, kMaxManifestCount));
  }
  void index(const char* name, int32_t& value);
  void optional_count(const char* name, std::optional<int64_t>& value);
  void counts(const char* name, std::vector<int64_t>& value);
  void texts(const char* name, std::vector<std::string>& value);
  void file_names(const char* name, std::vector<std::string>& value);

  template <class T>
  void objects(const char* name, std::vector<T>& items) {
    const Json* list = list_member(name);
    if (!list) return;
    items.reserve(list->size());
    for (size_t i = 0; i < list->size() && ok(); ++i) {
      ManifestReader inner((*list)[i], path(name) + "[" + std::to_string(i) + "]", version_,
                           error_);
      describe(inner, items.emplace_back());
      inner.finish();
    }
  }
  template <class T>
  void optional_object(const char* name, std::optional<T>& item) {
    const Json* json = member(name);
    if (!json || json->is_null()) return;
    ManifestReader inner(*json, path(name), version_, error_);
    describe(inner, item.emplace());
    inner.finish();
  }
  template <class Body>
  void group(const char* name, const Body& body) {
    const Json* json = member(name);
    if (!json) return;
    ManifestReader inner(*json, path(name), version_, error_);
    body(inner);
    inner.finish();
  }

  // Refuses members that were not asked for.
  void finish();
  bool ok() const { return error_.empty(); }

 private:
  std::string path(const char* name) const;
  void wrong(const char* name, const std::string& what);
  // nullptr once anything is wrong, so that callers need no checks of their own.
  const Json* member(const char* name);
  const Json* list_member(const char* name);
  uint64_t number(const char* name, const Json& json, uint64_t max);
  std::string string(const char* name, const Json& json);
  void check_file_name(const char* name, const std::string& value);
  template <class T>
  void integers(const char* name, std::vector<T>& value, uint64_t max);

  const Json& object_;
  std::string where_;
  int64_t version_;
  std::string& error_;
  std::vector<std::string_view> seen_;
};

// A name that can only mean a file directly inside a directory: 1 to 255 bytes, no '/', '\\' or
// NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

}  // namespace ferry::packer
