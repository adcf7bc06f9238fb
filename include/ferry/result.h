// Result<T> holds a value or an error. Functions of Ferry report errors only by Result. Exceptions
// of other libraries do not leave Ferry.
#pragma once

#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ferry {

// The kind of an error. The numeric value is the exit code of the program ferry.
enum class ErrorCode : int {
  kUsage = 2,        // the request is invalid or contradictory
  kBadInput = 3,     // malformed, hostile or incomplete input
  kUnsupported = 4,  // well formed, but the family, dtype or feature is not implemented
  kIo = 5,         // an error of the operating system: disk full, permission denied, file not found
  kExists = 6,     // the output exists already; scripts can tell this error from kUsage
  kInternal = 70,  // a defect in Ferry
  kInterrupted = 128,  // a request to stop; the program adds the number of the signal
};

// `message` is one line: "FILE: what is wrong (tensor 'x', offset N)". `details` has one more line
// for each offender, for checks that report all mismatches at once. `field` and `place` are for
// programs and are empty if not known. `field` is the member of an options struct that has a wrong
// value ("temperature"). `place` is the file that the error is about. The message contains both.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::vector<std::string> details = {};
  std::string field = {};
  std::string place = {};
};

namespace detail {

// Passes ownership of an error to the next Result.
struct [[nodiscard]] PassedError {
  Error* error;
};

// Owns an error on the heap, or none. After a move the object still counts as an error, but has no
// message. The function that frees the error is out of line, because every use of a Result contains
// its destructor.
class OwnedError {
 public:
  OwnedError() = default;
  explicit OwnedError(PassedError passed) : error_(passed.error) {}
  OwnedError(const OwnedError& other) : error_(other.is_set() ? copy(*other.error_) : nullptr) {}
  OwnedError(OwnedError&& other) noexcept : error_(other.error_) {
    if (error_ != nullptr) other.error_ = &moved_from_;
  }
  OwnedError& operator=(OwnedError other) noexcept {
    std::swap(error_, other.error_);
    return *this;
  }
  ~OwnedError() {
    if (error_ != nullptr) free();
  }

  bool is_set() const { return error_ != nullptr; }
  Error& get() const { return *error_; }
  [[noreturn]] void raise() const;
  // Requires is_set().
  PassedError pass() { return {std::exchange(error_, &moved_from_)}; }

 private:
  static Error moved_from_;
  static Error* copy(const Error& error);
  void free() noexcept;
  Error* error_ = nullptr;
};

}  // namespace detail

// The return type of fail(). Every Result can be constructed from a Failure.
class [[nodiscard]] Failure {
 public:
  explicit Failure(Error error);
  Failure(detail::PassedError passed) : error_(passed) {}  // NOLINT: implicit, as a return
  Error& error() { return error_.get(); }
  detail::PassedError pass() { return error_.pass(); }

 private:
  detail::OwnedError error_;
};

// A value or an error, like std::expected<T, Error> of C++23. The error takes one pointer. With
// tl::expected a build of the program took 1.27 times the processor time, because errors are
// returned in thousands of places. After a move a Result still holds a value, or still counts as an
// error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result() requires std::is_default_constructible_v<T> : value_() {}
  Result(Failure failure) : error_(failure.pass()) {}     // NOLINT: implicit, as a return
  Result(detail::PassedError passed) : error_(passed) {}  // NOLINT: implicit, as a return
  template <class U = T>
  requires(std::is_convertible_v<U&&, T> && !std::is_same_v<std::remove_cvref_t<U>, Result>)
      Result(U&& value)  // NOLINT: implicit, as a return; copies and moves are excluded
      : value_(std::forward<U>(value)) {}
  Result(const Result& other) requires std::is_copy_constructible_v<T> : error_(other.error_) {
    if (has_value()) new (&value_) T(other.value_);
  }
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : error_(std::move(other.error_)) {
    if (has_value()) new (&value_) T(std::move(other.value_));
  }
  Result& operator=(Result other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    if (has_value()) value_.~T();
    error_ = std::move(other.error_);
    if (has_value()) new (&value_) T(std::move(other.value_));
    return *this;
  }
  ~Result() {
    if (has_value()) value_.~T();
  }

  bool has_value() const { return !error_.is_set(); }
  explicit operator bool() const { return !error_.is_set(); }
  T& operator*() & { return value_; }
  const T& operator*() const& { return value_; }
  T&& operator*() && { return std::move(value_); }
  T* operator->() { return &value_; }
  const T* operator->() const { return &value_; }
  // Like operator*, for calls that cannot fail. Throws std::logic_error if there is an error.
  T& value() & { return check(), value_; }
  const T& value() const& { return check(), value_; }
  T&& value() && { return check(), std::move(value_); }
  template <class U>
  T value_or(U&& otherwise) const& {
    return has_value() ? value_ : static_cast<T>(std::forward<U>(otherwise));
  }
  template <class U>
  T value_or(U&& otherwise) && {
    return has_value() ? std::move(value_) : static_cast<T>(std::forward<U>(otherwise));
  }

  // Requires that there is no value.
  Error& error() & { return error_.get(); }
  const Error& error() const& { return error_.get(); }
  Error&& error() && { return std::move(error_.get()); }
  detail::PassedError pass() { return error_.pass(); }

 private:
  void check() const {
    if (!has_value()) error_.raise();
  }
  union {
    T value_;
  };
  detail::OwnedError error_;
};

// Success without a value, or an error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : error_(failure.pass()) {}     // NOLINT: implicit, as a return
  Result(detail::PassedError passed) : error_(passed) {}  // NOLINT: implicit, as a return

  bool has_value() const { return !error_.is_set(); }
  explicit operator bool() const { return !error_.is_set(); }
  Error& error() & { return error_.get(); }
  const Error& error() const& { return error_.get(); }
  Error&& error() && { return std::move(error_.get()); }
  detail::PassedError pass() { return error_.pass(); }

 private:
  detail::OwnedError error_;
};

using Status = Result<void>;

Failure fail(ErrorCode code, std::string message);
Failure bad_input(std::string message);
// Returns an error about one option or one member of an options struct. The message is the name of
// the field followed by `rest`, such as " must be positive" or ": not with images".
Failure fail_field(ErrorCode code, std::string field, const std::string& rest);

}  // namespace ferry

// auto x = FERRY_TRY(f()); yields the value of a Result, or returns its error from the enclosing
// function. It is a GNU statement expression, which both supported compilers have, so that moves
// work and no helper macros are needed. Do not use it in a braced list after a member that owns
// memory: compilers do not destroy that member when the function returns from the middle of the
// list.
#define FERRY_TRY(...)                             \
  __extension__({                                  \
    auto ferry_result = (__VA_ARGS__);             \
    if (!ferry_result) return ferry_result.pass(); \
    *std::move(ferry_result);                      \
  })

// FERRY_RETURN_IF_ERROR(g()); returns the error of a Status from the enclosing function, if there
// is one.
#define FERRY_RETURN_IF_ERROR(...)                 \
  do {                                             \
    auto ferry_status = (__VA_ARGS__);             \
    if (!ferry_status) return ferry_status.pass(); \
  } while (false)
