// Result<T>: a value or an error. It is the only way in which functions of Ferry fail; exceptions
// of other libraries do not pass through it.
#pragma once

#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ferry {

// Why something failed. The numeric value is the exit code of the program ferry.
enum class ErrorCode : int {
  kUsage = 2,          // the caller asks for something that makes no sense
  kBadInput = 3,       // malformed, hostile or incomplete input
  kUnsupported = 4,    // well formed, but a family, dtype or feature that is not implemented
  kIo = 5,             // the operating system said no: disk full, permission, absent file
  kExists = 6,         // what is to be made exists already: a script can tell that from misuse
  kInternal = 70,      // a defect of ours
  kInterrupted = 128,  // someone asked to stop; the program adds the number of the signal
};

// `message` is one line: "FILE: what is wrong (tensor 'x', offset N)". `details` are further lines,
// one per offender, for checks that report all mismatches at once. `field` and `place` are for
// programs and empty where they are not known: the member of an options struct that has a wrong
// value ("temperature"), and the file that the error is about. The message names both.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::vector<std::string> details = {};
  std::string field = {};
  std::string place = {};
};

namespace detail {

// An error that the next Result owns.
struct [[nodiscard]] PassedError {
  Error* error;
};

// An error on the heap, or none. One that was moved from is an error still, without a message. The
// function that frees it is out of line, because every use of a Result has its destructor.
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
  // Only where is_set().
  PassedError pass() { return {std::exchange(error_, &moved_from_)}; }

 private:
  static Error moved_from_;
  static Error* copy(const Error& error);
  void free() noexcept;
  Error* error_ = nullptr;
};

}  // namespace detail

// An error on its way to the caller: fail() returns it, and every Result accepts it.
class [[nodiscard]] Failure {
 public:
  explicit Failure(Error error);
  Failure(detail::PassedError passed) : error_(passed) {}  // NOLINT: implicit, as a return
  Error& error() { return error_.get(); }
  detail::PassedError pass() { return error_.pass(); }

 private:
  detail::OwnedError error_;
};

// A value or an error, like std::expected<T, Error> of C++23, with one pointer for the error.
// With tl::expected a build of the program took 1.27 times the processor time, because errors are
// returned in thousands of places. A Result that was moved from still has a value, or an error.
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
  // As *, for what cannot fail. Throws std::logic_error otherwise.
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

  // Only without a value.
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

// Success, or an error.
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
// An error about one option or member of an options struct, whose name begins the message. `rest`
// follows the name: " must be positive", ": not with images".
Failure fail_field(ErrorCode code, std::string field, const std::string& rest);

}  // namespace ferry

// auto x = FERRY_TRY(f());   the value of a Result, or returns its error from this function.
// A GNU statement expression, which both supported compilers have, so that moves work and no
// helper macros are needed. Not in a braced list behind a member that owns memory: compilers do not
// destroy that member when the function returns from the middle of the list.
#define FERRY_TRY(...)                             \
  __extension__({                                  \
    auto ferry_result = (__VA_ARGS__);             \
    if (!ferry_result) return ferry_result.pass(); \
    *std::move(ferry_result);                      \
  })

// FERRY_RETURN_IF_ERROR(g());   returns the error of a Status from this function, if there is one.
#define FERRY_RETURN_IF_ERROR(...)                 \
  do {                                             \
    auto ferry_status = (__VA_ARGS__);             \
    if (!ferry_status) return ferry_status.pass(); \
  } while (false)
