// Result<T>: the only failure channel of the project. Exceptions of libraries stop at the one file
// that wraps the library.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace ferry {

// The numeric value is the exit code of the program.
enum class ErrorCode : int {
  kUsage = 2,          // the command line asks for something that makes no sense
  kBadInput = 3,       // malformed, hostile or incomplete input
  kUnsupported = 4,    // well formed, but a family, dtype or feature that is not implemented
  kIo = 5,             // the operating system said no: disk full, permission, absent file
  kExists = 6,         // what is to be made exists already: a script can tell that from misuse
  kInternal = 70,      // a defect of ours
  kInterrupted = 128,  // a signal asked to stop (core/interrupt.h); its number is added
};

// `message` is one line: "FILE: what is wrong (tensor 'x', offset N)". `details` are further lines,
// one per offender, for checks that report all mismatches at once.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::vector<std::string> details = {};
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

using Status = Result<void>;

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
[[nodiscard]] inline tl::unexpected<Error> bad_input(std::string message) {
  return fail(ErrorCode::kBadInput, std::move(message));
}

}  // namespace ferry

// auto x = FERRY_TRY(f());   the value of a Result, or returns its error from this function.
// A GNU statement expression, which both supported compilers have, so that moves work and no
// helper macros are needed.
#define FERRY_TRY(...)                                                                         \
  __extension__({                                                                              \
    auto ferry_result = (__VA_ARGS__);                                                         \
    if (!ferry_result) return tl::unexpected<::ferry::Error>(std::move(ferry_result).error()); \
    *std::move(ferry_result);                                                                  \
  })

// FERRY_RETURN_IF_ERROR(g());   returns the error of a Status from this function, if there is one.
#define FERRY_RETURN_IF_ERROR(...)                                                             \
  do {                                                                                         \
    auto ferry_status = (__VA_ARGS__);                                                         \
    if (!ferry_status) return tl::unexpected<::ferry::Error>(std::move(ferry_status).error()); \
  } while (false)
