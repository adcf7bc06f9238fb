// Strict JSON for untrusted files: nesting is bounded, duplicate keys are refused, and integers are
// exact. A text becomes a document or, for readers that need none (headers of 100 MB), a stream of
// events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry {

inline constexpr int kMaxJsonDepth = 128;

// Parses one JSON document. Refuses duplicate keys in any object, nesting beyond kMaxJsonDepth,
// invalid UTF-8, anything after the document, NaN and Infinity. `name` begins the messages.
// Integers stay integers (unsigned or signed 64 bit); a number outside of that range becomes a
// float.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& name);

// The maximum length of a string or a number in the text. It bounds the memory, whatever the length
// of the text.
inline constexpr uint64_t kMaxJsonTokenBytes = uint64_t{16} << 20;

// Returns the next piece of a text, valid until the next call, or an empty one at the end. The
// first piece has at least 3 bytes unless it is the whole text.
using JsonPieces = std::function<Result<std::string_view>()>;

// Base class of handlers. Each function returns true to go on, or refuse(...). The nesting is
// bounded, and the first error is kept.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool number_integer(int64_t value) = 0;  // only for negative numbers
  virtual bool number_unsigned(uint64_t value) = 0;
  virtual bool number_float(
      double value, const std::string& text) = 0;  // `text` is the number as the document has it
  virtual bool string(std::string& value) = 0;
  virtual bool key(std::string& value) = 0;

 protected:
  virtual bool begin_object() = 0;
  virtual bool close_object() = 0;
  virtual bool begin_array() = 0;
  virtual bool close_array() = 0;
  // Ends the parse with kBadInput; `message` follows the file's name.
  bool refuse(std::string message);
  // The number of open containers: 1 inside the outermost object.
  int depth() const { return depth_; }

 private:
  friend class JsonEvents;
  bool enter();

  int depth_ = 0;
  std::string error_;
};

// Feeds one document to `handler`. Refuses what parse_json refuses, except for duplicate keys,
// which the handler must find. `name` begins the messages; their offsets count from `base_offset`,
// the position of the text in its file. Only one piece and one token are in memory at a time. An
// error of `next` ends the parse.
Status parse_json_events(const JsonPieces& next, const std::string& name, JsonHandler& handler,
                         uint64_t base_offset = 0);
Status parse_json_events(std::string_view text, const std::string& name, JsonHandler& handler,
                         uint64_t base_offset = 0);

}  // namespace ferry
