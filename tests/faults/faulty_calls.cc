// Linked into ferry_faulty, which is ferry with some system calls wrapped by the linker (--wrap),
// so that the program itself needs no seam. What goes wrong is said by the environment:
//
//   FERRY_FAULT="CALL KIND N [A B]"
//
// CALL is pread, pwrite or fsync. On its N-th call, or on every one where N is 0:
//   errno A     it fails with that number, EINTR only every other time
//   short       it transfers half of what was asked for, one byte at least
//   truncate A B  the file A first loses all but B bytes
//   replace A B   the file B first is renamed to A
//
// FERRY_FAULT_COUNT=FILE: how often CALL was called is written there when the program ends.
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

extern "C" {
ssize_t __real_pread(int fd, void* data, size_t size, off_t offset);
ssize_t __real_pwrite(int fd, const void* data, size_t size, off_t offset);
int __real_fsync(int fd);
ssize_t __wrap_pread(int fd, void* data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void* data, size_t size, off_t offset);
int __wrap_fsync(int fd);
}

namespace {

class Plan {
 public:
  Plan() {
    if (const char* text = std::getenv("FERRY_FAULT")) {
      std::istringstream(text) >> call_ >> kind_ >> at_ >> a_ >> b_;
    }
  }
  ~Plan() {
    const char* path = std::getenv("FERRY_FAULT_COUNT");
    std::FILE* file = path == nullptr ? nullptr : std::fopen(path, "w");
    if (file == nullptr) return;
    std::fprintf(file, "%ld\n", count_.load());
    std::fclose(file);
  }

  // Whether this call fails, with errno set. `size` becomes what it is to transfer.
  bool fails(const char* call, size_t& size) {
    if (call_ != call) return false;
    const long number = ++count_;
    if (at_ != 0 && number != at_) return false;
    if (kind_ == "short") size = size / 2 + size % 2;
    if (kind_ == "truncate") (void)!::truncate(a_.c_str(), std::atol(b_.c_str()));
    if (kind_ == "replace") (void)std::rename(b_.c_str(), a_.c_str());
    if (kind_ != "errno") return false;
    errno = std::atoi(a_.c_str());
    return errno != EINTR || number % 2 == 1;
  }

 private:
  std::string call_, kind_, a_, b_;
  long at_ = 0;
  std::atomic<long> count_ = 0;
};

Plan plan;

}  // namespace

ssize_t __wrap_pread(int fd, void* data, size_t size, off_t offset) {
  return plan.fails("pread", size) ? -1 : __real_pread(fd, data, size, offset);
}

ssize_t __wrap_pwrite(int fd, const void* data, size_t size, off_t offset) {
  return plan.fails("pwrite", size) ? -1 : __real_pwrite(fd, data, size, offset);
}

int __wrap_fsync(int fd) {
  size_t none = 0;
  return plan.fails("fsync", none) ? -1 : __real_fsync(fd);
}
