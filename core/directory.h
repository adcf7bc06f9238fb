// Directory: an open directory. Its files are opened relative to its descriptor, so that it stays
// the same directory whatever its path comes to mean.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/unique_fd.h"

namespace ferry {

// Move-only.
class Directory {
 public:
  // `path` may be a symbolic link to a directory. kIo where it is no directory.
  static Result<Directory> open(const std::string& path);
  // The folder `name` in it, a plain name. kBadInput where it is a symbolic link, kIo where there
  // is no such folder.
  Result<Directory> open_folder(const std::string& name) const;

  const std::string& path() const { return path_; }
  // The path of a file in it, for messages.
  std::string path_of(const std::string& name) const;
  // Also a symbolic link that points nowhere.
  bool contains(const std::string& name) const;
  // Names of all files, directories and links in it, in ascending order.
  Result<std::vector<std::string>> names() const;
  // Where the symbolic link `name` points; nullopt where `name` is not a symbolic link.
  std::optional<std::string> link_target(const std::string& name) const;
  // Opens `file`, a path relative to the directory. Messages and InputFile::path() name it as
  // path_of(name). Only the last component of `file` is subject to `links`.
  Result<InputFile> open_file(const std::string& file, const std::string& name,
                              InputFile::Links links) const;

 private:
  UniqueFd fd_;
  std::string path_;
};

// Names of all files, directories and links in the open directory `directory`, in ascending order.
// `path` is used in messages.
Result<std::vector<std::string>> names_in(int directory, const std::string& path);

// The lock of a directory (flock), which keeps out other processes that take it. Move-only; it ends
// with this object, or when the process does.
class DirectoryLock {
 public:
  // Takes no lock.
  DirectoryLock() = default;
  // Takes the lock of the directory at `path`. While another process holds it, this tries again
  // every 10 ms, `tries` times in all. `links` says whether `path` may be a symbolic link.
  static DirectoryLock take(const std::string& path, InputFile::Links links, int tries = 1);

  // False if the directory cannot be opened or another process holds its lock. True on a file
  // system without locks.
  bool is_taken() const { return fd_.is_open(); }
  // The descriptor of the directory; negative unless is_taken().
  int fd() const { return fd_.get(); }
  // Whether the lock keeps others out: false on a file system without locks.
  bool is_held() const;

 private:
  UniqueFd fd_;
};

// Folders that were made for something that is about to be written into the last of them. They are
// removed again with this object, as far as they are empty, unless keep() was called. Move-only.
class NewFolders {
 public:
  NewFolders() = default;
  ~NewFolders();
  NewFolders(NewFolders&& other) noexcept { made_.swap(other.made_); }
  NewFolders& operator=(NewFolders&& other) noexcept {
    made_.swap(other.made_);
    return *this;
  }

  // Makes the folder `path` and those above it that are not there. kIo where that is not possible.
  static Result<NewFolders> make(const std::string& path);
  // Syncs the folders that hold those that were made.
  Status sync() const;
  void keep() { made_.clear(); }

 private:
  std::vector<std::string> made_;  // the outermost first
};

// The folder that `path`, which does not end in a slash, is in.
std::string parent_folder(const std::string& path);

}  // namespace ferry
