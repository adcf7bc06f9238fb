#include "core/result.h"

#include <stdexcept>

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

}  // namespace ferry
