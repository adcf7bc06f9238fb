#include "core/file_state.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/os_error.h"

namespace ferry {
namespace {

int64_t nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Result<std::string> state_of(const InputFile& file) {
  FERRY_RETURN_IF_ERROR(file.check_unchanged());
  const InputFile::Descriptor descriptor = FERRY_TRY(file.descriptor());
  struct stat info {};
  if (::fstat(descriptor.fd(), &info) != 0) return os_error(file.path(), "cannot examine", errno);
  return fmt::format("inode {}, {} bytes, modified {}, changed {}", info.st_ino, info.st_size,
                     nanoseconds(info.st_mtim), nanoseconds(info.st_ctim));
}

}  // namespace ferry
