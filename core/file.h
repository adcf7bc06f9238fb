// Files: opened without blocking on FIFOs or devices, read with pread, written with explicit sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry {

// A regular file open for reading. Move-only, closes itself. Thread-safe for reads.
class InputFile {
 public:
  InputFile() = default;
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  // Refuses anything but a regular file before an open could block. `name` is used in messages.
  static Result<InputFile> open(const std::string& path);

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

  // All of `out`, or an error: kIo on a read error and when the file ends early.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;
  // kIo unless size and modification time are still those seen by open().
  Status check_unchanged() const;

 private:
  int fd_ = -1;
  uint64_t size_ = 0;
  int64_t mtime_ns_ = 0;
  std::string path_;
};

// The whole file, at most `limit` bytes; for small text files.
Result<std::string> read_text_file(const std::string& path, uint64_t limit);

// A read-only private mapping of a whole file. Only for bundles and programs, whose digests are
// known; checkpoints are read with InputFile, because a mapped file that shrinks raises SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  static Result<MappedFile> open(const std::string& path);
  // Valid as long as this object lives.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// A new file (O_EXCL) for positioned writes. Thread-safe for writes at distinct places.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  static Result<OutputFile> create(const std::string& path, uint64_t size);
  Status write_at(uint64_t offset, std::span<const std::byte> data) const;
  // A hint: written bytes of this range should begin to go to the disk, so that the sync at the end
  // has little left to wait for.
  void start_writeback(uint64_t offset, uint64_t size) const;
  // fsync and close; errors of either are reported.
  Status sync_and_close();

 private:
  int fd_ = -1;
  std::string path_;
};

Status sync_directory(const std::string& path);
// Every regular file below `path` removed with it; used for temporary and replaced bundles.
Status remove_tree(const std::string& path);

}  // namespace ferry
