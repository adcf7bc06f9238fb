#include "core/disk_space.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>

#include "core/checked.h"
#include "core/os_error.h"
#include "core/text.h"

namespace ferry {

Status require_space(const std::string& directory, uint64_t bytes, const std::string& path) {
  struct statvfs info {};
  int result;
  do {
    result = ::statvfs(directory.c_str(), &info);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return os_error(directory, "cannot examine", errno);
  const uint64_t block = info.f_frsize != 0 ? info.f_frsize : info.f_bsize;
  const auto free = checked_mul<uint64_t>(info.f_bavail, block);
  if (info.f_blocks == 0 || !free || *free >= bytes) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: not enough space: {} bytes are needed ({}), {} are free ({}) in {}",
                          printable(path), bytes, human_bytes(bytes), *free, human_bytes(*free),
                          quoted(directory)));
}

}  // namespace ferry
