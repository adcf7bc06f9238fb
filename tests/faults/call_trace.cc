#include "tests/faults/call_trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/faults/real_calls.h"

namespace ferry {
namespace {

uint64_t inode_of(int fd) {
  struct stat info {};
  ::fstat(fd, &info);
  return info.st_ino;
}

}  // namespace

CallTrace& CallTrace::get() {
  static CallTrace trace;
  return trace;
}

CallTrace::CallTrace() {
  const char* path = std::getenv("FERRY_TRACE");
  if (path != nullptr) {
    fd_ = __real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
}

void CallTrace::put(const std::string& text) {
  const std::lock_guard lock(mutex_);
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(fd_, text.data() + done, text.size() - done);
    if (count <= 0) std::abort();
    done += static_cast<size_t>(count);
  }
}

void CallTrace::made(const std::string& path) {
  if (fd_ < 0) return;
  struct stat info {};
  ::lstat(path.c_str(), &info);
  put(fmt::format("make {} {} {}\n", info.st_ino, S_ISDIR(info.st_mode) ? 'd' : 'f', path));
}

void CallTrace::write(int fd, const void* data, size_t size, off_t offset) {
  if (fd_ < 0) return;
  std::string text = fmt::format("write {} {} {}\n", inode_of(fd), offset, size);
  text.append(static_cast<const char*>(data), size);
  put(text);
}

void CallTrace::truncate(int fd, off_t size) {
  if (fd_ >= 0) put(fmt::format("truncate {} {}\n", inode_of(fd), size));
}

void CallTrace::sync(int fd) {
  if (fd_ >= 0) put(fmt::format("sync {}\n", inode_of(fd)));
}

void CallTrace::rename(const std::string& from, const std::string& to, unsigned flags) {
  if (fd_ >= 0) put(fmt::format("rename {} {}\n{}\n", flags, from, to));
}

void CallTrace::removed(int directory, const std::string& path) {
  if (fd_ < 0) return;
  if (directory == AT_FDCWD || path.starts_with('/')) return put(fmt::format("remove {}\n", path));
  std::string parent(PATH_MAX, '\0');
  const ssize_t size =
      ::readlink(fmt::format("/proc/self/fd/{}", directory).c_str(), parent.data(), parent.size());
  if (size < 0) std::abort();
  parent.resize(static_cast<size_t>(size));
  put(fmt::format("remove {}/{}\n", parent, path));
}

}  // namespace ferry
