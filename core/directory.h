// Directory is an open directory. Its files are opened relative to its descriptor, so that it stays
// the same directory even if its path comes to name another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace ferry {

// Move-only.
class Directory {
 public:
  // `path` may be a symbolic link to a directory. kIo if it is not a directory.
  static Result<Directory> open(const std::string& path);
  // Opens the folder `name`, a plain name, in this directory. kBadInput if it is a symbolic link,
  // kIo if there is no such folder.
  Result<Directory> open_folder(const std::string& name) const;

  const std::string& path() const { return path_; }
  // Returns the path of a file in the directory, for messages.
  std::string path_of(const std::string& name) const;
  // Returns true also for a symbolic link that points nowhere.
  bool contains(const std::string& name) const;
  // Returns the names of all files, directories and links in the directory, in ascending order.
  Result<std::vector<std::string>> names() const;
  // Returns the target of the symbolic link `name`, or nullopt if `name` is not a symbolic link.
  std::optional<std::string> link_target(const std::string& name) const;
  // Opens `file`, a path relative to the directory. Messages and InputFile::path() name it as
  // path_of(name). Only the last component of `file` is subject to `links`.
  Result<InputFile> open_file(const std::string& file, const std::string& name,
                              InputFile::Links links) const;

 private:
  UniqueFd fd_;
  std::string path_;
};

// Returns the names of all files, directories and links in the open directory `directory`, in
// ascending order. `path` is used in messages.
Result<std::vector<std::string>> names_in(int directory, const std::string& path);

// The lock of a directory (flock), which excludes other processes that take the same lock.
// Move-only. The lock ends with this object or with the process.
class DirectoryLock {
 public:
  // This constructor takes no lock.
  DirectoryLock() = default;
  // Takes the lock of the directory at `path`. While another process holds the lock, this tries
  // again every 10 ms, `tries` times in all. `links` says whether `path` may be a symbolic link.
  static DirectoryLock take(const std::string& path, InputFile::Links links, int tries = 1);

  // False if the directory cannot be opened or another process holds its lock. True on a file
  // system without locks.
  bool is_taken() const { return fd_.is_open(); }
  // The descriptor of the directory; negative unless is_taken().
  int fd() const { return fd_.get(); }
  // Returns whether the lock excludes other processes: false on a file system without locks.
  bool is_held() const;

 private:
  UniqueFd fd_;
};

// Folders that were made because something is about to be written into the last of them. The
// destructor removes those that are empty, unless keep() was called. Move-only.
class NewFolders {
 public:
  NewFolders() = default;
  ~NewFolders();
  NewFolders(NewFolders&& other) noexcept { made_.swap(other.made_); }
  NewFolders& operator=(NewFolders&& other) noexcept {
    made_.swap(other.made_);
    return *this;
  }

  // Makes the folder `path` and the missing folders above it. kIo if that is not possible.
  static Result<NewFolders> make(const std::string& path);
  // Syncs the parent folders of those that were made.
  Status sync() const;
  void keep() { made_.clear(); }

 private:
  std::vector<std::string> made_;  // outermost first
};

// Returns the folder that contains `path`. The path does not end in a slash.
std::string parent_folder(const std::string& path);

// Returns kIo if the file system of `directory` has less than `bytes` bytes for this user. The
// message states both numbers and the directory. `path` is the file that needs the space. A file
// system that does not know its size passes.
Status require_space(const std::string& directory, uint64_t bytes, const std::string& path);

}  // namespace ferry
