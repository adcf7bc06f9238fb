// JsonWriter appends one JSON document to a string. Unlike a tree of values it needs no memory but
// the text, which matters when a checkpoint has a hundred thousand tensors, and it compiles
// quickly. Untrusted text is made valid: bytes that are not UTF-8 become U+FFFD.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ferry {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return begin('{'); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array() { return begin('['); }
  JsonWriter& end_array() { return end(']'); }
  // Inside of an object, key() precedes each value.
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(bool b) { return raw(b ? "true" : "false"); }
  JsonWriter& value(std::integral auto n) { return raw(std::to_string(n)); }
  // Writes null for a number that is not finite.
  JsonWriter& value(double d);
  JsonWriter& value(const Shape& shape);
  JsonWriter& value(const std::vector<std::string>& texts);
  // Writes null for nullopt.
  template <class T>
  JsonWriter& value(const std::optional<T>& v) {
    return v ? value(*v) : null();
  }
  JsonWriter& null() { return raw("null"); }

  template <class T>
  JsonWriter& member(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  // Returns the finished document, with a newline.
  std::string take();

 private:
  JsonWriter& begin(char bracket);
  JsonWriter& end(char bracket);
  JsonWriter& raw(std::string_view text);
  void append_string(std::string_view text);
  void separate();

  std::string text_;
  bool first_ = true;  // the innermost bracket has no value yet, or the last call was key()
};

}  // namespace ferry
