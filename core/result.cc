#include "core/result.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/text.h"

namespace ferry {
namespace detail {

Error OwnedError::moved_from_;

Error* OwnedError::copy(const Error& error) { return new Error(error); }

void OwnedError::raise() const { throw std::logic_error(error_->message); }

void OwnedError::free() noexcept {
  if (error_ != &moved_from_) delete error_;
}

}  // namespace detail

Failure::Failure(Error error) : error_(detail::PassedError{new Error(std::move(error))}) {}

Failure fail(ErrorCode code, std::string message) {
  return Failure(Error{code, std::move(message)});
}
Failure bad_input(std::string message) { return fail(ErrorCode::kBadInput, std::move(message)); }

Failure fail_field(ErrorCode code, std::string field, const std::string& rest) {
  std::string text = field + rest;
  return Failure(Error{.code = code, .message = std::move(text), .field = std::move(field)});
}

Failure os_error(const std::string& path, std::string_view what, int number) {
  const std::string reason = std::strerror(number);
  return fail(number == EEXIST ? ErrorCode::kExists : ErrorCode::kIo,
              fmt::format("{}: {}: {}", printable(path), what, reason));
}

}  // namespace ferry
