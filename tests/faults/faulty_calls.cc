// Linked into ferry_faulty, which is ferry with some system calls wrapped by the linker (--wrap),
// so that the program itself needs no code for tests. The environment states the fault:
//
//   FERRY_FAULT="CALL KIND N [A B]"
//
// CALL is the name of a wrapped call, or `change`: any call that changes a disk. The fault happens
// on the N-th call, or on every call where N is 0:
//   errno A     the call fails with that number, EINTR only every other time
//   short       it transfers half of the requested bytes, at least one
//   truncate A B  the file A first loses all but B bytes
//   replace A B   the file B is first renamed to A
//   kill        the process ends by SIGKILL before the call
//   tear        the process ends by SIGKILL after half of a write; before other calls
//
// FERRY_FAULT_COUNT=FILE: the number of calls of CALL is written there when the program ends.
// FERRY_TRACE=FILE: see call_trace.h.
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/faults/call_trace.h"
#include "tests/faults/real_calls.h"

namespace {

using ferry::CallTrace;

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

  // Returns whether this call fails, and sets errno. Sets `size` to the number of bytes to
  // transfer. Sets `torn` if the process ends after the call.
  bool fails(std::string_view call, bool changes, size_t& size, bool& torn) {
    if (call_ != call && !(changes && call_ == "change")) return false;
    const long number = ++count_;
    if (at_ != 0 && number != at_) return false;
    if (kind_ == "short") size = size / 2 + size % 2;
    if (kind_ == "truncate") (void)!::truncate(a_.c_str(), std::atol(b_.c_str()));
    if (kind_ == "replace") (void)__real_rename(b_.c_str(), a_.c_str());
    if (kind_ == "tear" && size > 1) {
      size /= 2;
      torn = true;
    } else if (kind_ == "kill" || kind_ == "tear") {
      ::kill(::getpid(), SIGKILL);
    }
    if (kind_ != "errno") return false;
    errno = std::atoi(a_.c_str());
    return errno != EINTR || number % 2 == 1;
  }
  // Returns whether a call that transfers nothing fails.
  bool fails(std::string_view call, bool changes = true) {
    size_t none = 0;
    bool torn = false;
    return fails(call, changes, none, torn);
  }

 private:
  std::string call_, kind_, a_, b_;
  long at_ = 0;
  std::atomic<long> count_ = 0;
};

Plan plan;

}  // namespace

extern "C" {

ssize_t __wrap_pread(int fd, void* data, size_t size, off_t offset) {
  bool torn = false;
  return plan.fails("pread", false, size, torn) ? -1 : __real_pread(fd, data, size, offset);
}

ssize_t __wrap_pwrite(int fd, const void* data, size_t size, off_t offset) {
  bool torn = false;
  if (plan.fails("pwrite", true, size, torn)) return -1;
  const ssize_t written = __real_pwrite(fd, data, size, offset);
  if (written > 0) CallTrace::get().write(fd, data, static_cast<size_t>(written), offset);
  if (torn) ::kill(::getpid(), SIGKILL);
  return written;
}

int __wrap_open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = va_arg(args, mode_t);  // undefined, and unused, where the call has no mode
  va_end(args);
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  if (plan.fails("open", makes)) return -1;
  const int fd = __real_open(path, flags, mode);
  if (fd >= 0 && (flags & O_CREAT) != 0) CallTrace::get().made(path);
  return fd;
}

int __wrap_fsync(int fd) {
  if (plan.fails("fsync")) return -1;
  const int result = __real_fsync(fd);
  if (result == 0) CallTrace::get().sync(fd);
  return result;
}

int __wrap_fdatasync(int fd) {
  if (plan.fails("fdatasync")) return -1;
  const int result = __real_fdatasync(fd);
  if (result == 0) CallTrace::get().sync(fd);
  return result;
}

int __wrap_ftruncate(int fd, off_t size) {
  if (plan.fails("ftruncate")) return -1;
  const int result = __real_ftruncate(fd, size);
  if (result == 0) CallTrace::get().truncate(fd, size);
  return result;
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t size) {
  return plan.fails("fallocate") ? -1 : __real_fallocate(fd, mode, offset, size);
}

int __wrap_mkdir(const char* path, mode_t mode) {
  if (plan.fails("mkdir")) return -1;
  const int result = __real_mkdir(path, mode);
  if (result == 0) CallTrace::get().made(path);
  return result;
}

int __wrap_rename(const char* from, const char* to) {
  if (plan.fails("rename")) return -1;
  const int result = __real_rename(from, to);
  if (result == 0) CallTrace::get().rename(from, to, 0);
  return result;
}

int __wrap_renameat2(int from_directory, const char* from, int to_directory, const char* to,
                     unsigned flags) {
  if (plan.fails("renameat2")) return -1;
  const int result = __real_renameat2(from_directory, from, to_directory, to, flags);
  if (result == 0) CallTrace::get().rename(from, to, flags);
  return result;
}

int __wrap_link(const char* from, const char* to) {
  return plan.fails("link") ? -1 : __real_link(from, to);
}

int __wrap_linkat(int from_directory, const char* from, int to_directory, const char* to,
                  int flags) {
  return plan.fails("linkat") ? -1 : __real_linkat(from_directory, from, to_directory, to, flags);
}

int __wrap_unlink(const char* path) {
  if (plan.fails("unlink")) return -1;
  const int result = __real_unlink(path);
  if (result == 0) CallTrace::get().removed(AT_FDCWD, path);
  return result;
}

int __wrap_unlinkat(int directory, const char* path, int flags) {
  if (plan.fails("unlinkat")) return -1;
  const int result = __real_unlinkat(directory, path, flags);
  if (result == 0) CallTrace::get().removed(directory, path);
  return result;
}

int __wrap_rmdir(const char* path) {
  if (plan.fails("rmdir")) return -1;
  const int result = __real_rmdir(path);
  if (result == 0) CallTrace::get().removed(AT_FDCWD, path);
  return result;
}

int __wrap_flock(int fd, int operation) {
  return plan.fails("flock", false) ? -1 : __real_flock(fd, operation);
}

// The tests write into memory. This makes every file look as if it were on a disk.
int __wrap_fstatfs(int fd, struct statfs* info) {
  const int result = __real_fstatfs(fd, info);
  info->f_type = 0;
  return result;
}

// `errno N` gives a disk that is nearly full, with N free bytes.
int __wrap_statvfs(const char* path, struct statvfs* info) {
  const int result = __real_statvfs(path, info);
  if (result != 0 || !plan.fails("statvfs", false)) return result;
  info->f_frsize = 1;
  info->f_bavail = static_cast<fsblkcnt_t>(errno);
  return 0;
}

}  // extern "C"
