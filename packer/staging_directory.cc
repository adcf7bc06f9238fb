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
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "core/exists_error.h"
#include "core/file.h"
#include "core/os_error.h"
#include "core/text.h"
#include "packer/manifest.h"

namespace ferry::packer {
namespace {

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

tl::unexpected<Error> usage(const std::string& path, std::string_view what) {
  return fail(ErrorCode::kUsage, fmt::format("{}: {}", printable(path), what));
}

tl::unexpected<Error> taken(const std::string& path, std::string_view what) {
  return fail(kExists, fmt::format("{}: {}", printable(path), what));
}

// What is being written has this and the process id behind it; a directory that is being made, and
// has no lock yet, has the other one and a number of its own.
std::string staging_prefix(const std::string& name) { return "." + name + ".ferry-tmp-"; }
std::string new_prefix(const std::string& name) { return "." + name + ".ferry-new-"; }

// Takes the lock of a directory; -1 where another process holds it or it cannot be had.
int try_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  // A file system without locks leaves the process id as the only witness.
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  ::close(fd);
  return -1;
}

// Keeps runs that look for each other in one parent apart, so that of two that begin at once one
// sees the other. Whoever locks the parent for longer is not waited for: the worst is then that
// both runs stop.
class ParentLock {
 public:
  explicit ParentLock(const std::string& parent) {
    for (int tries = 0; tries < 20; ++tries) {
      fd_ = try_lock(parent);
      if (fd_ >= 0) return;
      ::usleep(10'000);
    }
  }
  ~ParentLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  ParentLock(const ParentLock&) = delete;
  ParentLock& operator=(const ParentLock&) = delete;

 private:
  int fd_ = -1;
};

enum class Owner { kNobody, kGone, kWriting, kUnknown };

// Whose directory `entry` is, by its name, its process and its lock. Process ids are not enough
// where containers share a directory, and locks are not enough on every file system: that an owner
// is gone, both must say.
Owner owner_of(const std::string& parent, std::string_view entry, const std::string& prefix) {
  if (!entry.starts_with(prefix)) return Owner::kNobody;
  const std::string_view digits = entry.substr(prefix.size());
  pid_t pid = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || pid <= 0) {
    return Owner::kNobody;
  }
  const std::string path = parent + "/" + std::string(entry);
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return Owner::kNobody;
  const int lock = try_lock(path);
  if (lock < 0) return Owner::kWriting;
  ::close(lock);
  // Our own id is that of an earlier process with the same one.
  const bool alive = pid != ::getpid() && (::kill(pid, 0) == 0 || errno != ESRCH);
  return alive ? Owner::kUnknown : Owner::kGone;
}

// Removes what runs that are gone have left of this target. kUsage if another run is writing it.
Status remove_abandoned(const std::string& parent, const std::string& name,
                        const std::string& target) {
  std::vector<std::string> abandoned, unused;
  {
    const Directory directory(::opendir(parent.c_str()), &::closedir);
    if (!directory) return os_error(parent, "cannot list", errno);
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string_view found = entry->d_name;
      if (found.starts_with(new_prefix(name))) unused.emplace_back(found);
      const Owner owner = owner_of(parent, found, staging_prefix(name));
      if (owner == Owner::kGone) abandoned.emplace_back(found);
      if (owner == Owner::kWriting) {
        return usage(target, fmt::format("another run is writing it (in {})", quoted(found, 200)));
      }
    }
  }
  // These are empty. If one is just being made, its maker makes another.
  for (const std::string& entry : unused) (void)::rmdir((parent + "/" + entry).c_str());
  for (const std::string& entry : abandoned)
    FERRY_RETURN_IF_ERROR(remove_tree(parent + "/" + entry));
  return {};
}

// Makes the directory `path`, which is locked from the first moment at which it has this name: one
// without a lock could be taken for abandoned. Returns the descriptor that holds the lock.
Result<int> make_locked(const std::string& parent, const std::string& name,
                        const std::string& path) {
  constexpr int kTries = 5;
  std::random_device random;
  int number = 0;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::string made =
        fmt::format("{}/{}{:08x}{:08x}", parent, new_prefix(name), random(), random());
    if (::mkdir(made.c_str(), 0777) != 0) return os_error(path, "cannot create", errno);
    const int lock = try_lock(made);
    if (lock >= 0 &&
        ::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) {
      return lock;
    }
    number = errno;
    // Not every file system knows the flag; a plain rename replaces an empty directory at most.
    if (lock >= 0 && number == EINVAL && ::rename(made.c_str(), path.c_str()) == 0) return lock;
    if (lock >= 0) ::close(lock);
    (void)::rmdir(made.c_str());
    if (number != ENOENT) break;  // ENOENT: another run has taken it for a remainder
  }
  return os_error(path, "cannot create", number);
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
  struct stat behind {};
  if (S_ISLNK(info.st_mode) && ::stat(target.c_str(), &behind) == 0 && S_ISDIR(behind.st_mode)) {
    return taken(target, "is a symbolic link to a directory: name the directory itself");
  }
  if (!overwrite) return taken(target, "exists already (--overwrite replaces a bundle)");
  if (!S_ISDIR(info.st_mode)) return taken(target, "exists and is not a directory");
  const std::string manifest = target + "/" + std::string(kManifestName);
  struct stat ignored {};
  if (::lstat(manifest.c_str(), &ignored) == 0 || is_empty_directory(target)) return {};
  return taken(target, "is neither a bundle nor empty, and is left alone");
}

Status check_parent(const std::string& parent) {
  struct stat info {};
  if (::stat(parent.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return {};
    return os_error(parent, "cannot hold the bundle", ENOTDIR);
  }
  if (errno != ENOENT) return os_error(parent, "cannot examine", errno);
  return fail(ErrorCode::kIo,
              fmt::format("{}: there is no such directory: make it first", printable(parent)));
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

  FERRY_RETURN_IF_ERROR(check_parent(staging.parent_));
  if (const auto existing = FERRY_TRY(look_at(staging.target_))) {
    FERRY_RETURN_IF_ERROR(check_replaceable(staging.target_, *existing, overwrite));
  }
  const ParentLock parent_lock(staging.parent_);
  FERRY_RETURN_IF_ERROR(remove_abandoned(staging.parent_, name, target));
  const std::string path =
      fmt::format("{}/{}{}", staging.parent_, staging_prefix(name), ::getpid());
  staging.lock_ = FERRY_TRY(make_locked(staging.parent_, name, path));
  staging.path_ = path;
  return staging;
}

Status StagingDirectory::publish() {
  FERRY_RETURN_IF_ERROR(sync_directory(path_));
  const auto existing = FERRY_TRY(look_at(target_));
  if (existing) {
    FERRY_RETURN_IF_ERROR(check_replaceable(target_, *existing, overwrite_));
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
  FERRY_RETURN_IF_ERROR(sync_directory(parent_));
  FERRY_RETURN_IF_ERROR(remove_tree(path_));  // the old one; tried once more on destruction
  path_.clear();
  return {};
}

}  // namespace ferry::packer
