#include "packer/manifest_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "core/utf8.h"

namespace ferry::packer {
namespace {

constexpr size_t kMaxFileName = 255;

bool is_digest(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether `c` is printable ASCII that needs no escape in a string.
bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

// Appends the character at the start of `text`, which is not plain. Returns its length in `text`.
size_t put_other(std::string_view text, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  const auto c = static_cast<unsigned char>(text[0]);
  if (const size_t at = kEscaped.find(text[0]); at != std::string_view::npos) {
    out.append(1, '\\').append(1, kLetters[at]);
    return 1;
  }
  if (c < ' ') {
    out += fmt::format("\\u{:04x}", c);
    return 1;
  }
  const size_t length = utf8::decode(text, 0).size;
  out += length == 0 ? "\xef\xbf\xbd" : text.substr(0, length);
  return std::max<size_t>(length, 1);
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxFileName && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

void ManifestWriter::begin(char bracket) {
  out_ += bracket;
  ++depth_;
  empty_ = true;
}

void ManifestWriter::end(char bracket) {
  --depth_;
  if (!empty_) out_.append(1, '\n').append(depth_, ' ');
  out_ += bracket;
  empty_ = false;
}

void ManifestWriter::next() {
  out_ += empty_ ? "\n" : ",\n";
  out_.append(depth_, ' ');
  empty_ = false;
}

void ManifestWriter::key(const char* name) {
  next();
  put_string(name);
  out_ += ": ";
}

void ManifestWriter::raw(const char* name, std::string_view value) {
  key(name);
  out_ += value;
}

void ManifestWriter::put_string(std::string_view text) {
  out_ += '"';
  while (!text.empty()) {
    const auto plain = std::ranges::find_if_not(text, is_plain);
    const auto length = static_cast<size_t>(plain - text.begin());
    out_ += text.substr(0, length);
    text.remove_prefix(length);
    if (!text.empty()) text.remove_prefix(put_other(text, out_));
  }
  out_ += '"';
}

// Formats a number as nlohmann-json does: the shortest form that reads back as an equal number.
void ManifestWriter::real(const char* name, double value) {
  raw(name, nlohmann::json(value).dump());
}

ManifestReader::ManifestReader(const Json& object, int64_t version, std::string& error,
                               const ManifestReader* parent, const char* name, size_t index)
    : object_(object),
      version_(version),
      error_(error),
      parent_(parent),
      name_(name),
      index_(index) {
  if (ok() && !object_.is_object()) error_ = fmt::format("{} is not an object", path());
}

std::string ManifestReader::path() const {
  if (parent_ == nullptr) return {};
  const std::string whole = parent_->path(name_);
  return index_ == kNoIndex ? whole : fmt::format("{}[{}]", whole, index_);
}

std::string ManifestReader::path(const char* name) const {
  const std::string where = path();
  return where.empty() ? name : where + "." + name;
}

void ManifestReader::wrong(const char* name, const std::string& what) {
  if (ok()) error_ = fmt::format("{} {}", path(name), what);
}

const ManifestReader::Json* ManifestReader::member(const char* name) {
  if (!ok()) return nullptr;
  const auto found = object_.find(name);
  if (found == object_.end()) {
    wrong(name, "is missing");
    return nullptr;
  }
  seen_.emplace_back(name);
  return &*found;
}

const ManifestReader::Json* ManifestReader::list_member(const char* name) {
  const Json* json = member(name);
  if (!json || json->is_array()) return json;
  wrong(name, "is not a list");
  return nullptr;
}

uint64_t ManifestReader::number(const char* name, const Json& json, uint64_t max) {
  const auto* value = json.get_ptr<const uint64_t*>();
  if (value && *value <= max) return *value;
  wrong(name, fmt::format("is not an integer from 0 to {}", max));
  return 0;
}

std::string ManifestReader::string(const char* name, const Json& json) {
  if (const auto* value = json.get_ptr<const std::string*>()) return *value;
  wrong(name, "is not a string");
  return {};
}

void ManifestReader::check_file_name(const char* name, const std::string& value) {
  if (!is_plain_file_name(value)) {
    wrong(name, fmt::format("is not a plain file name but {}", quoted(value)));
  }
}

void ManifestReader::text(const char* name, std::string& value) {
  if (const Json* json = member(name)) value = string(name, *json);
}

void ManifestReader::line(const char* name, std::string& value, uint64_t max_bytes) {
  text(name, value);
  const bool printable = std::ranges::all_of(value, [](char c) { return c >= ' ' && c <= '~'; });
  if (value.empty() || value.size() > max_bytes || !printable) {
    wrong(name, fmt::format("is not 1 to {} bytes of printable ASCII", max_bytes));
  }
}

void ManifestReader::choice(const char* name, std::string& value, Choices choices) {
  text(name, value);
  if (ok() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
    wrong(name, fmt::format("has the unknown value {}", quoted(value)));
  }
}

void ManifestReader::file_name(const char* name, std::string& value) {
  text(name, value);
  check_file_name(name, value);
}

void ManifestReader::optional_file_name(const char* name, std::string& value) {
  text(name, value);
  if (!value.empty()) check_file_name(name, value);
}

void ManifestReader::digest(const char* name, std::string& value, size_t digits) {
  text(name, value);
  if (!is_digest(value, digits)) {
    wrong(name, fmt::format("is not {} lower-case hexadecimal digits", digits));
  }
}

void ManifestReader::dtype(const char* name, DType& value) {
  std::string text_value;
  text(name, text_value);
  if (!ok()) return;
  if (const auto found = dtype_from_name(text_value)) {
    value = *found;
  } else {
    wrong(name, fmt::format("is an unknown dtype {}", quoted(text_value)));
  }
}

template <class T>
void ManifestReader::integers(const char* name, std::vector<T>& value, uint64_t max) {
  const Json* list = list_member(name);
  if (!list) return;
  for (const Json& item : *list) value.push_back(static_cast<T>(number(name, item, max)));
}

void ManifestReader::shape(const char* name, Shape& value) {
  integers(name, value, kMaxManifestIndex);
  if (value.size() > kMaxManifestRank) wrong(name, "has more than 16 dimensions");
}

void ManifestReader::counts(const char* name, std::vector<int64_t>& value) {
  integers(name, value, kMaxManifestCount);
}

void ManifestReader::boolean(const char* name, bool& value) {
  const Json* json = member(name);
  if (!json) return;
  if (const auto* flag = json->get_ptr<const bool*>()) {
    value = *flag;
  } else {
    wrong(name, "is not true or false");
  }
}

void ManifestReader::real(const char* name, double& value) {
  const Json* json = member(name);
  if (!json) return;
  const auto* number_value = json->get_ptr<const double*>();
  if (number_value && std::isfinite(*number_value) && *number_value >= 0) {
    value = *number_value;
  } else {
    wrong(name, "is not a finite real number >= 0");
  }
}

void ManifestReader::index(const char* name, int32_t& value) {
  if (const Json* json = member(name)) {
    value = static_cast<int32_t>(number(name, *json, kMaxManifestIndex));
  }
}

void ManifestReader::optional_count(const char* name, std::optional<int64_t>& value) {
  const Json* json = member(name);
  if (!json || json->is_null()) return;
  value = static_cast<int64_t>(number(name, *json, kMaxManifestCount));
}

void ManifestReader::texts(const char* name, std::vector<std::string>& value) {
  const Json* list = list_member(name);
  if (!list) return;
  for (const Json& item : *list) value.push_back(string(name, item));
}

void ManifestReader::file_names(const char* name, std::vector<std::string>& value) {
  texts(name, value);
  for (const std::string& item : value) check_file_name(name, item);
}

void ManifestReader::finish() {
  if (!ok() || seen_.size() == object_.size()) return;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end()) continue;
    error_ = fmt::format("{} has an unknown member {}",
                         parent_ == nullptr ? "the document" : path(), quoted(key));
    return;
  }
}

}  // namespace ferry::packer
