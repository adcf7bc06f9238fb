// LineReader: lines of standard input, for programs that wait for them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/result.h"

namespace ferry::cli {

inline constexpr size_t kMaxLineBytes = size_t{1} << 20;

class LineReader {
 public:
  // The next line without its end (LF or CR LF); nullopt at the end of input. kInterrupted as soon
  // as something has asked to stop, kBadInput beyond kMaxLineBytes, kIo.
  Result<std::optional<std::string>> next();
  // All that is left; kBadInput beyond `limit` bytes.
  Result<std::string> rest(size_t limit);

 private:
  Status read_more();
  std::string take(size_t length);

  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace ferry::cli
