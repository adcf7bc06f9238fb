// CallTrace: writes every change that the program makes to a disk, in order, to the file that
// FERRY_TRACE names. lost_writes.h reads it. Each change is one line, with paths without line
// breaks:
//
//   make INODE d|f PATH      a directory or a file
//   write INODE OFFSET SIZE  SIZE bytes follow the line
//   truncate INODE SIZE
//   sync INODE
//   rename FLAGS FROM        a line with TO follows
//   remove PATH
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <mutex>
#include <string>

namespace ferry {

class CallTrace {
 public:
  static CallTrace& get();

  void made(const std::string& path);
  void write(int fd, const void* data, size_t size, off_t offset);
  void truncate(int fd, off_t size);
  void sync(int fd);
  void rename(const std::string& from, const std::string& to, unsigned flags);
  void removed(int directory, const std::string& path);

 private:
  CallTrace();
  void put(const std::string& text);

  std::mutex mutex_;
  int fd_ = -1;
};

}  // namespace ferry
