#include "batch/small_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/file.h"
#include "core/result.h"

namespace ferry::batch {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

// Returns 0 or an errno.
int write_and_close(UniqueFd fd, std::string_view text, Durable durable) {
  int problem = 0;
  while (!text.empty() && problem == 0) {
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      problem = errno;
    }
  }
  if (problem == 0 && durable == Durable::kContents && ::fsync(fd.get()) != 0) problem = errno;
  if (fd.close() != 0 && problem == 0) problem = errno;
  return problem;
}

double file_seconds(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

Status write_small_file(const std::string& path, const std::string& temporary,
                        std::string_view text, Durable durable) {
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.is_open()) return os_error(temporary, "cannot create", errno);
  if (const int problem = write_and_close(std::move(fd), text, durable); problem != 0) {
    ::unlink(temporary.c_str());
    return os_error(temporary, "cannot write", problem);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return os_error(path, "cannot rename to it", errno);
  }
  return {};
}

Result<std::optional<std::string>> read_small_file(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0 && errno == ENOENT) return std::optional<std::string>();
  std::string text = FERRY_TRY(read_text_file(path, kMaxBytes));
  // A file that was written with Durable::kNo can be empty after a power failure.
  return text.empty() ? std::optional<std::string>() : std::optional<std::string>(std::move(text));
}

Status make_directories(const std::string& path) {
  std::error_code problem;
  std::filesystem::create_directories(path, problem);
  if (problem) return os_error(path, "cannot create", problem.value());
  return {};
}

bool touch(const std::string& path) {
  // A null pointer makes the file server set its own time. Explicit times would be of this host's
  // clock.
  return ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0;
}

std::optional<double> seconds_since_touch(const std::string& path, const std::string& beside) {
  struct stat then = {}, now = {};
  if (::stat(path.c_str(), &then) != 0) return std::nullopt;
  if (!touch(beside) || ::stat(beside.c_str(), &now) != 0) return std::nullopt;
  return file_seconds(now.st_mtim) - file_seconds(then.st_mtim);
}

}  // namespace ferry::batch
