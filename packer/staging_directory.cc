// All or nothing on a POSIX file system: make a sibling, fill and sync it, rename it, sync the
// parent.
#include "packer/staging_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>  // renameat2
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/text.h"
#include "packer/manifest.h"

namespace ferry {
namespace {

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

tl::unexpected<Error> os_error(const std::string& path, std::string_view what, int number) {
  return fail(ErrorCode::kIo,
              fmt::format("{}: {}: {}", printable(path), what, std::strerror(number)));
}

tl::unexpected<Error> usage(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kUsage, fmt::format("{}: {}", printable(path), what));
}

std::string staging_prefix(const std::string& name) { return "." + name + ".ferry-tmp-"; }

// Takes the lock of a staging directory; -1 where another process holds it or it cannot be had.
int try_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  // A file system without locks leaves the process id as the only witness.
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  ::close(fd);
  return -1;
}

// Whether `entry` is a staging directory of a process that is gone. Process ids are not enough
// where containers share a directory, and locks are not enough on every file system: both must
// agree.
bool is_abandoned(const std::string& parent, std::string_view entry, const std::string& prefix) {
  if (!entry.starts_with(prefix)) return false;
  const std::string_view digits = entry.substr(prefix.size());
  pid_t pid = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || pid <= 0) {
    return false;
  }
  // Our own id is that of an earlier process with the same one.
  if (pid != ::getpid() && (::kill(pid, 0) == 0 || errno != ESRCH)) return false;
  const int lock = try_lock(parent + "/" + std::string(entry));
  if (lock >= 0) ::close(lock);
  return lock >= 0;
}

Status remove_abandoned(const std::string& parent, const std::string& name) {
  const std::string prefix = staging_prefix(name);
  std::vector<std::string> abandoned;
  {
    const Directory directory(::opendir(parent.c_str()), &::closedir);
    if (!directory) return os_error(parent, "cannot list", errno);
    while (const dirent* entry = ::readdir(directory.get())) {
      if (is_abandoned(parent, entry->d_name, prefix)) abandoned.emplace_back(entry->d_name);
    }
  }
  for (const std::string& entry : abandoned) FERRY_CHECK(remove_tree(parent + "/" + entry));
  return {};
}

bool is_empty_directory(const std::string& path) {
  const Directory directory(::opendir(path.c_str()), &::closedir);
  if (!directory) return false;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (std::string_view(entry->d_name) != "." && std::string_view(entry->d_name) != "..") {
      return false;
    }
  }
  return true;
}

// Nothing but a bundle or an empty directory is ever replaced: a mistyped path must not cost a home
// directory.
Status check_replaceable(const std::string& target, const struct stat& info, bool overwrite) {
  if (!overwrite) return usage(target, "exists already (--overwrite replaces a bundle)");
  if (!S_ISDIR(info.st_mode)) return usage(target, "exists and is not a directory");
  const std::string manifest = target + "/" + std::string(kManifestName);
  struct stat ignored {};
  if (::lstat(manifest.c_str(), &ignored) == 0 || is_empty_directory(target)) return {};
  return usage(target, "is neither a bundle nor empty, and is left alone");
}

// lstat of `path`, or nothing if it is absent.
Result<std::optional<struct stat>> look_at(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return std::optional(info);
  if (errno == ENOENT) return std::optional<struct stat>();
  return os_error(path, "cannot examine", errno);
}

}  // namespace

StagingDirectory::~StagingDirectory() {
  if (!path_.empty()) (void)remove_tree(path_);
  if (lock_ >= 0) ::close(lock_);
}

StagingDirectory::StagingDirectory(StagingDirectory&& other) noexcept { *this = std::move(other); }

StagingDirectory& StagingDirectory::operator=(StagingDirectory&& other) noexcept {
  std::swap(target_, other.target_);
  std::swap(parent_, other.parent_);
  std::swap(path_, other.path_);
  std::swap(overwrite_, other.overwrite_);
  std::swap(lock_, other.lock_);
  return *this;
}

Result<StagingDirectory> StagingDirectory::create(const std::string& target, bool overwrite) {
  StagingDirectory staging;
  staging.overwrite_ = overwrite;
  staging.target_ = target;
  while (staging.target_.size() > 1 && staging.target_.back() == '/') staging.target_.pop_back();
  const size_t slash = staging.target_.rfind('/');
  const std::string name =
      slash == std::string::npos ? staging.target_ : staging.target_.substr(slash + 1);
  if (name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos) {
    return usage(target, "is not a name for a new directory");
  }
  staging.parent_ = slash == std::string::npos ? "." : staging.target_.substr(0, slash);
  if (staging.parent_.empty()) staging.parent_ = "/";

  if (const auto existing = FERRY_TRY(look_at(staging.target_))) {
    FERRY_CHECK(check_replaceable(staging.target_, *existing, overwrite));
  }
  FERRY_CHECK(remove_abandoned(staging.parent_, name));
  const std::string path =
      fmt::format("{}/{}{}", staging.parent_, staging_prefix(name), ::getpid());
  if (::mkdir(path.c_str(), 0777) != 0) return os_error(path, "cannot create", errno);
  staging.path_ = path;
  staging.lock_ = try_lock(path);
  if (staging.lock_ < 0) return os_error(path, "cannot lock", EWOULDBLOCK);
  return staging;
}

Status StagingDirectory::publish() {
  FERRY_CHECK(sync_directory(path_));
  const auto existing = FERRY_TRY(look_at(target_));
  if (existing) {
    FERRY_CHECK(check_replaceable(target_, *existing, overwrite_));
    return exchange();
  }
  int result = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_NOREPLACE);
  // Not every file system knows the flag; a plain rename never replaces a directory with files in
  // it.
  if (result != 0 && errno == EINVAL) result = ::rename(path_.c_str(), target_.c_str());
  if (result != 0) return os_error(target_, "cannot be given its name", errno);
  path_.clear();
  return sync_directory(parent_);
}

Status StagingDirectory::exchange() {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    return os_error(target_, "cannot be replaced in one step", errno);
  }
  FERRY_CHECK(sync_directory(parent_));
  FERRY_CHECK(remove_tree(path_));  // the old one; tried once more on destruction
  path_.clear();
  return {};
}

}  // namespace ferry
