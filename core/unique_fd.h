// UniqueFd: the owner of a file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace ferry {

// Move-only. Closes the descriptor when it is destroyed.
class UniqueFd {
 public:
  UniqueFd() = default;
  // A negative `fd` means that there is no descriptor.
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Returns the descriptor, which the caller then owns.
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) (void)close();
  }
  // For callers that report errors: returns -1 and sets errno if the close failed. On Linux the
  // descriptor is closed in either case.
  int close() { return ::close(release()); }

 private:
  int fd_ = -1;
};

}  // namespace ferry
