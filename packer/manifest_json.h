// The two directions of manifest.json. One description of the members (packer/manifest.cc) is
// walked by a ManifestWriter, which makes JSON text of a struct, or by a ManifestReader, which
// fills a struct and remembers the first error. Both classes have equal member functions. Private
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

namespace ferry::packer {

inline constexpr uint64_t kMaxManifestCount = uint64_t{1} << 62;
inline constexpr uint64_t kMaxManifestIndex = (uint64_t{1} << 31) - 1;
inline constexpr size_t kMaxManifestRank = 16;
inline constexpr size_t kDigestDigits = 64;  // length of a SHA-256

using Choices = std::initializer_list<std::string_view>;

// Appends members to a text, in the layout of docs/bundle_format.md.
class ManifestWriter {
 public:
  explicit ManifestWriter(int64_t version) : version_(version) {}

  // Whether the document has the members that were added in `version`.
  bool since(int64_t version) const { return version_ >= version; }

  void text(const char* name, const std::string& value) {
    key(name);
    put_string(value);
  }
  void line(const char* name, const std::string& value, uint64_t) { text(name, value); }
  void choice(const char* name, const std::string& value, Choices) { text(name, value); }
  void file_name(const char* name, const std::string& value) { text(name, value); }
  void optional_file_name(const char* name, const std::string& value) { text(name, value); }
  void digest(const char* name, const std::string& value, size_t /*digits*/ = kDigestDigits) {
    text(name, value);
  }
  void dtype(const char* name, DType value) { text(name, std::string(dtype_name(value))); }
  void shape(const char* name, const Shape& value) { integers(name, value); }
  void boolean(const char* name, bool value) { raw(name, value ? "true" : "false"); }
  void real(const char* name, double value);
  template <class T>
  void count(const char* name, T value) {
    raw(name, std::to_string(value));
  }
  void index(const char* name, int32_t value) { count(name, value); }
  void optional_count(const char* name, const std::optional<int64_t>& value) {
    raw(name, value ? std::to_string(*value) : "null");
  }
  void counts(const char* name, const std::vector<int64_t>& value) { integers(name, value); }
  void texts(const char* name, const std::vector<std::string>& value) {
    list(name, value, [this](const std::string& item) { put_string(item); });
  }
  void file_names(const char* name, const std::vector<std::string>& value) { texts(name, value); }

  // Calls describe(archive, item) for each item.
  template <class T>
  void objects(const char* name, std::vector<T>& items) {
    list(name, items, [this](T& item) { object([&] { describe(*this, item); }); });
  }
  // Writes null, or calls describe(archive, *item).
  template <class T>
  void optional_object(const char* name, std::optional<T>& item) {
    if (!item) return raw(name, "null");
    key(name);
    object([&] { describe(*this, *item); });
  }
  template <class Body>
  void group(const char* name, const Body& body) {
    key(name);
    object([&] { body(*this); });
  }
  // Writes the document, whose members `body` writes.
  template <class Body>
  std::string document(const Body& body) {
    object(body);
    out_ += '\n';
    return std::move(out_);
  }

 private:
  void begin(char bracket);
  void end(char bracket);
  // Begins the next element of a list or the next member of an object.
  void next();
  void key(const char* name);
  void raw(const char* name, std::string_view value);
  // Replaces bytes that are not UTF-8 by U+FFFD, so that the manifest stays readable.
  void put_string(std::string_view text);

  template <class Body>
  void object(const Body& body) {
    begin('{');
    body();
    end('}');
  }
  template <class List, class Put>
  void list(const char* name, List& items, const Put& put) {
    key(name);
    begin('[');
    for (auto& item : items) {
      next();
      put(item);
    }
    end(']');
  }
  void integers(const char* name, const std::vector<int64_t>& value) {
    list(name, value, [this](int64_t item) { out_ += std::to_string(item); });
  }

  int64_t version_;
  std::string out_;
  size_t depth_ = 0;
  bool empty_ = true;  // the innermost bracket is empty so far
};

class ManifestReader {
 public:
  using Json = nlohmann::json;

  // `object` is a document of `version`. `error` receives the first error.
  ManifestReader(const Json& object, int64_t version, std::string& error)
      : ManifestReader(object, version, error, nullptr, "", kNoIndex) {}

  bool since(int64_t version) const { return version_ >= version; }

  void text(const char* name, std::string& value);
  // Reads 1 to `max_bytes` bytes of printable ASCII.
  void line(const char* name, std::string& value, uint64_t max_bytes);
  void choice(const char* name, std::string& value, Choices choices);
  void file_name(const char* name, std::string& value);
  void optional_file_name(const char* name, std::string& value);
  void digest(const char* name, std::string& value, size_t digits = kDigestDigits);
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
      ManifestReader inner((*list)[i], version_, error_, this, name, i);
      describe(inner, items.emplace_back());
      inner.finish();
    }
  }
  template <class T>
  void optional_object(const char* name, std::optional<T>& item) {
    const Json* json = member(name);
    if (!json || json->is_null()) return;
    ManifestReader inner(*json, version_, error_, this, name, kNoIndex);
    describe(inner, item.emplace());
    inner.finish();
  }
  template <class Body>
  void group(const char* name, const Body& body) {
    const Json* json = member(name);
    if (!json) return;
    ManifestReader inner(*json, version_, error_, this, name, kNoIndex);
    body(inner);
    inner.finish();
  }

  // Refuses members that were not read.
  void finish();
  bool ok() const { return error_.empty(); }

 private:
  static constexpr size_t kNoIndex = SIZE_MAX;
  // Reads the member `name` of `parent`, or the element `index` of that list.
  ManifestReader(const Json& object, int64_t version, std::string& error,
                 const ManifestReader* parent, const char* name, size_t index);

  // Returns the path for a message; that of the document is empty. Paths are made only when needed.
  std::string path() const;
  std::string path(const char* name) const;
  void wrong(const char* name, const std::string& what);
  // Returns nullptr after the first error, so that callers need no checks of their own.
  const Json* member(const char* name);
  const Json* list_member(const char* name);
  uint64_t number(const char* name, const Json& json, uint64_t max);
  std::string string(const char* name, const Json& json);
  void check_file_name(const char* name, const std::string& value);
  template <class T>
  void integers(const char* name, std::vector<T>& value, uint64_t max);

  const Json& object_;
  int64_t version_;
  std::string& error_;
  const ManifestReader* parent_;
  const char* name_;
  size_t index_;
  std::vector<std::string_view> seen_;
};

// Whether the name can only mean a file directly inside a directory: 1 to 255 bytes, no '/', '\\'
// or NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

}  // namespace ferry::packer
