// A LineReader reads lines of standard input, and returns early when a signal asks to stop.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/result.h"

namespace ferry::cli {

inline constexpr size_t kMaxLineBytes = size_t{1} << 20;

class LineReader {
 public:
  // Returns the next line without its end (LF or CR LF), or nullopt at the end of input. Returns
  // kInterrupted once a signal asks to stop, kBadInput for a line of more than kMaxLineBytes, or
  // kIo.
  Result<std::optional<std::string>> next();
  // Returns whether next() would return without waiting for more input.
  Result<bool> ready();
  // Returns the rest of the input. Returns kBadInput for more than `limit` bytes.
  Result<std::string> rest(size_t limit);

 private:
  Status read_more(int milliseconds);
  std::string take(size_t length);

  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace ferry::cli
