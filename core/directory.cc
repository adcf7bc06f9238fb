#include "core/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <utility>

#include "core/checked.h"
#include "core/result.h"
#include "core/text.h"

namespace ferry {

Result<Directory> Directory::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return os_error(path, "cannot open", EINVAL);
  Directory directory;
  // With O_PATH, files of a directory that may not be listed can be opened.
  directory.fd_ = UniqueFd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.fd_.is_open()) return os_error(path, "cannot open", errno);
  directory.path_ = path;
  return directory;
}

Result<Directory> Directory::open_folder(const std::string& name) const {
  const std::string path = path_of(name);
  if (link_target(name)) return bad_input(printable(path) + ": a symbolic link to a folder");
  Directory folder;
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  folder.fd_ = UniqueFd(::openat(fd_.get(), name.c_str(), kFlags));
  if (!folder.fd_.is_open()) return os_error(path, "cannot open", errno);
  folder.path_ = path;
  return folder;
}

std::string Directory::path_of(const std::string& name) const {
  return path_ + (path_.ends_with('/') ? "" : "/") + name;
}

bool Directory::contains(const std::string& name) const {
  struct stat ignored {};
  return ::fstatat(fd_.get(), name.c_str(), &ignored, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

Result<std::vector<std::string>> Directory::names() const { return names_in(fd_.get(), path_); }

Result<std::vector<std::string>> names_in(int directory, const std::string& path) {
  // Listing needs a descriptor of its own: it moves the position, and closedir() closes it.
  UniqueFd fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fd.is_open() ? ::fdopendir(fd.get()) : nullptr,
                                                    &::closedir);
  if (!listing) return os_error(path, "cannot list", errno);
  (void)fd.release();
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(listing.get());
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  if (errno != 0) return os_error(path, "cannot list", errno);
  std::erase_if(names, [](const std::string& name) { return name == "." || name == ".."; });
  std::ranges::sort(names);
  return names;
}

std::optional<std::string> Directory::link_target(const std::string& name) const {
  std::string target(PATH_MAX, '\0');
  const ssize_t size = ::readlinkat(fd_.get(), name.c_str(), target.data(), target.size());
  if (size < 0) return std::nullopt;
  target.resize(static_cast<size_t>(size));
  return target;
}

Result<InputFile> Directory::open_file(const std::string& file, const std::string& name,
                                       InputFile::Links links) const {
  return InputFile::open_at(fd_.get(), file, path_of(name), links);
}

DirectoryLock DirectoryLock::take(const std::string& path, InputFile::Links links, int tries) {
  DirectoryLock lock;
  const int follow = links == InputFile::Links::kFollow ? 0 : O_NOFOLLOW;
  lock.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
  while (lock.fd_.is_open() && ::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) != 0 &&
         errno == EWOULDBLOCK) {
    if (--tries <= 0) return {};
    ::usleep(10'000);
  }
  return lock;
}

bool DirectoryLock::is_held() const { return ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0; }

NewFolders::~NewFolders() {
  while (!made_.empty()) {
    (void)::rmdir(made_.back().c_str());
    made_.pop_back();
  }
}

Result<NewFolders> NewFolders::make(const std::string& path) {
  NewFolders folders;
  struct stat info {};
  std::vector<std::string> absent;
  for (std::string at = path; ::stat(at.c_str(), &info) != 0; at = parent_folder(at)) {
    if (errno != ENOENT) return os_error(at, "cannot examine", errno);
    absent.push_back(at);
  }
  for (; !absent.empty(); absent.pop_back()) {
    if (::mkdir(absent.back().c_str(), 0777) == 0) {
      folders.made_.push_back(absent.back());
    } else if (errno != EEXIST) {
      return os_error(absent.back(), "cannot create", errno);
    }
  }
  return folders;
}

Status NewFolders::sync() const {
  for (const std::string& folder : made_) {
    FERRY_RETURN_IF_ERROR(sync_directory(parent_folder(folder)));
  }
  return {};
}

std::string parent_folder(const std::string& path) {
  size_t end = path.rfind('/');
  if (end == std::string::npos) return ".";
  while (end > 0 && path[end - 1] == '/') --end;
  return end == 0 ? "/" : path.substr(0, end);
}

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
