#include "core/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>  // renameat2
#include <memory>
#include <random>
#include <utility>

#include "core/directory.h"
#include "core/result.h"
#include "core/text.h"

namespace ferry {
namespace {

constexpr std::string_view kPartSuffix = ".ferry-part-";
constexpr mode_t kMode = 0666;  // the process's umask is subtracted
// Processes that replace files of one directory hold the lock of the directory for a few system
// calls only. A process that holds the lock for longer is not waited for.
constexpr int kLockTries = 50;

// Returns an error if `path` exists and `existing` forbids its replacement.
Status check_existing(const std::string& path, IfExists existing) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return os_error(path, "cannot examine", errno);
  }
  if (existing == IfExists::kRefuse) return os_error(path, "cannot create", EEXIST);
  if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) return {};
  return fail(ErrorCode::kIo,
              fmt::format("{}: cannot replace: not a regular file", printable(path)));
}

// Returns the path under /proc by which an open file without a name can be linked.
std::string open_name(const OutputFile& file) { return fmt::format("/proc/self/fd/{}", file.fd()); }

// Removes the file at `path` unless a process that writes it holds its lock.
void remove_if_abandoned(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open()) return;
  struct stat info {};
  const bool regular = ::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode);
  if (regular && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) (void)::unlink(path.c_str());
}

void remove_abandoned(const std::string& parent, const std::string& prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(parent.c_str()), &::closedir);
  if (!directory) return;
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string_view found = entry->d_name;
    if (found.starts_with(prefix)) remove_if_abandoned(fmt::format("{}/{}", parent, found));
  }
}

UniqueFd open_new(const std::string& path, int flags) {
  UniqueFd fd;
  do {
    fd = UniqueFd(::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, kMode));
  } while (!fd.is_open() && errno == EINTR);
  return fd;
}

}  // namespace

Status write_atomically(const std::string& path, std::span<const std::byte> bytes,
                        IfExists existing) {
  AtomicFile file = FERRY_TRY(AtomicFile::create(path, existing, bytes.size()));
  FERRY_RETURN_IF_ERROR(file.write_at(0, bytes));
  return file.publish();
}

Status write_atomically(const std::string& path, std::string_view text, IfExists existing) {
  return write_atomically(path, std::as_bytes(std::span(text)), existing);
}

AtomicFile::~AtomicFile() {
  if (!part_.empty()) (void)::unlink(part_.c_str());
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  std::swap(parent_, other.parent_);
  std::swap(name_, other.name_);
  std::swap(part_, other.part_);
  std::swap(existing_, other.existing_);
  return *this;
}

Result<AtomicFile> AtomicFile::create(const std::string& path, IfExists existing, uint64_t size) {
  AtomicFile made;
  made.path_ = path;
  made.existing_ = existing;
  made.name_ = base_name(path);
  if (made.name_.empty() || made.name_ == "." || made.name_ == ".." || path.ends_with('/') ||
      path.find('\0') != std::string::npos) {
    return fail(ErrorCode::kUsage, fmt::format("{}: is not a name for a file", printable(path)));
  }
  made.parent_ = path.substr(0, path.size() - made.name_.size());
  if (made.parent_.empty()) made.parent_ = ".";
  FERRY_RETURN_IF_ERROR(check_existing(path, existing));
  bool supported = false;
  FERRY_RETURN_IF_ERROR(made.create_unnamed(size, supported));
  if (!supported) FERRY_RETURN_IF_ERROR(made.create_named(size));
  return made;
}

// A file without a name can be published only through /proc.
Status AtomicFile::create_unnamed(uint64_t size, bool& supported) {
  UniqueFd fd = open_new(parent_, O_TMPFILE);
  supported = fd.is_open();
  if (!supported && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) return {};
  if (!supported) return os_error(path_, "cannot create", errno);
  file_ = OutputFile::adopt(std::move(fd), path_);
  if (::access(open_name(file_).c_str(), F_OK) != 0) {
    supported = false;
    return {};
  }
  return file_.extend(size);
}

Status AtomicFile::create_named(uint64_t size) {
  remove_abandoned(parent_, fmt::format(".{}{}", name_, kPartSuffix));
  constexpr int kTries = 5;
  std::random_device random;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::string part =
        sibling(fmt::format("{}{:08x}{:08x}", kPartSuffix, random(), random()));
    UniqueFd fd = open_new(part, O_CREAT | O_EXCL);
    if (!fd.is_open() && errno == EEXIST) continue;
    if (!fd.is_open()) return os_error(path_, "cannot create", errno);
    file_ = OutputFile::adopt(std::move(fd), path_);
    // Another process may have removed the file as abandoned before this one locked it.
    struct stat info {};
    const bool locked = ::flock(file_.fd(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (!locked || ::lstat(part.c_str(), &info) != 0) continue;
    part_ = part;
    return file_.extend(size);
  }
  return os_error(path_, "cannot create", EEXIST);
}

std::string AtomicFile::sibling(std::string_view suffix) const {
  return fmt::format("{}/.{}{}", parent_, name_, suffix);
}

Status AtomicFile::publish() {
  FERRY_RETURN_IF_ERROR(file_.sync());
  FERRY_RETURN_IF_ERROR(check_existing(path_, existing_));
  if (!part_.empty()) {
    FERRY_RETURN_IF_ERROR(rename_part());
  } else if (existing_ == IfExists::kRefuse) {
    FERRY_RETURN_IF_ERROR(link_new());
  } else {
    FERRY_RETURN_IF_ERROR(link_replacing());
  }
  part_.clear();
  file_ = OutputFile();
  return sync_directory(parent_);
}

Status AtomicFile::link_new() {
  if (::linkat(AT_FDCWD, open_name(file_).c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) ==
      0) {
    return {};
  }
  return os_error(path_, "cannot be given its name", errno);
}

// A link cannot replace a file, but a rename can. The intermediate name is always the same, so that
// a file that a killed process left there is found without a search.
Status AtomicFile::link_replacing() {
  const DirectoryLock lock = DirectoryLock::take(parent_, InputFile::Links::kFollow, kLockTries);
  const std::string part = sibling(".ferry-new");
  if (::unlink(part.c_str()) != 0 && errno != ENOENT) {
    return os_error(part, "cannot remove", errno);
  }
  if (::linkat(AT_FDCWD, open_name(file_).c_str(), AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) !=
      0) {
    return os_error(path_, "cannot be given its name", errno);
  }
  part_ = part;
  if (::rename(part.c_str(), path_.c_str()) == 0) return {};
  return os_error(path_, "cannot be given its name", errno);
}

Status AtomicFile::rename_part() {
  int result;
  if (existing_ == IfExists::kReplace) {
    result = ::rename(part_.c_str(), path_.c_str());
  } else {
    result = ::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    // Where the file system does not support RENAME_NOREPLACE, link() refuses to replace a file as
    // well.
    if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {
      result = ::link(part_.c_str(), path_.c_str());
      if (result == 0) (void)::unlink(part_.c_str());
    }
  }
  if (result == 0) return {};
  return os_error(path_, "cannot be given its name", errno);
}

}  // namespace ferry
