// Files are opened without blocking on FIFOs or devices, read with pread, and written with explicit
// sync.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/huge_memory.h"
#include "core/result.h"

namespace ferry {

// The owner of a file descriptor. Move-only. Closes the descriptor when it is destroyed.
class UniqueFd {
 public:
  UniqueFd() = default;
  // A negative `fd` means that there is no descriptor.
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // Returns the descriptor, which the caller then owns.
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) (void)close();
  }
  // For callers that report errors: returns -1 and sets errno if the close failed. On Linux the
  // descriptor is closed in either case.
  int close() { return ::close(release()); }

 private:
  int fd_ = -1;
};

// A regular file open for reading. Move-only; closed by the destructor. Thread-safe for reads.
//
// A checkpoint can have more files than a process may have open, so only some InputFiles have a
// descriptor at a time. The others are opened again when they are read. It is an error if the path
// then names another file, or the file has changed.
class InputFile {
 public:
  enum class Links { kFollow, kRefuse };  // for a path that is itself a symbolic link
  // Keeps the descriptor open as long as the Descriptor lives. It must not outlive the InputFile.
  class Descriptor;

  InputFile();
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  // Refuses anything but a regular file before opening it could block. `path` is used in messages.
  static Result<InputFile> open(const std::string& path, Links links = Links::kFollow);
  // Opens `file`, a path relative to the open directory `directory`. `path` is used in messages and
  // to open the file again; it is an error if it then names another file.
  static Result<InputFile> open_at(int directory, const std::string& file, const std::string& path,
                                   Links links);
  // A file that is this memory. It has no descriptor, and counts as unchanged.
  static InputFile in_memory(std::shared_ptr<const HugeMemory> memory, std::string path);

  uint64_t size() const;
  const std::string& path() const;
  Result<Descriptor> descriptor() const;
  // The memory of in_memory(), or nullptr.
  const std::shared_ptr<const HugeMemory>& memory() const;

  // Fills `out`. kIo on a read error and if the file ends early.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;
  // Returns kIo unless the size and the times of change are those that open() saw. They include
  // ctime, because tools that set the modification time back cannot set ctime.
  Status check_unchanged() const;

 private:
  struct State;
  friend class OpenFiles;
  std::unique_ptr<State> state_;
};

class InputFile::Descriptor {
 public:
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();
  int fd() const;

 private:
  friend class InputFile;
  explicit Descriptor(State* state) : state_(state) {}
  State* state_;
};

// Returns the number of files that this process may have open.
size_t most_open_files();
// Raises the number of files that this process may have open to the maximum of the system.
void raise_most_open_files();

// Reads a whole small text file. kBadInput if it has more than `limit` bytes.
Result<std::string> read_text_file(const std::string& path, uint64_t limit);
Result<std::string> read_text(const InputFile& file, uint64_t limit);

// A read-only private mapping of a whole file, or the memory of a file in memory. It is for bundles
// and programs only, whose digests are known. Checkpoints are read with InputFile, because a mapped
// file that shrinks raises SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  static Result<MappedFile> open(const std::string& path);
  // Maps the file that `file` has open, even if its path names another file by now.
  static Result<MappedFile> map(const InputFile& file);
  // The bytes are valid as long as this object lives.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const HugeMemory> memory_;  // the owner of the bytes; nullptr for a mapping
  std::string path_;
};

// A file for positioned writes. Move-only. Thread-safe for writes at distinct places. A file that
// must be complete or absent is written with AtomicFile (core/atomic_file.h).
class OutputFile {
 public:
  // Creates a new file (O_EXCL) and extends it to `size`.
  static Result<OutputFile> create(const std::string& path, uint64_t size);
  // Opens an existing file for reading and writing in place. kIo unless it is a regular file
  // without other hard links and the path is not a symbolic link.
  static Result<OutputFile> open_existing(const std::string& path);
  // Takes a descriptor that is open for writing. `path` is used in messages.
  static OutputFile adopt(UniqueFd fd, std::string path);
  // A file that is this memory, whose size it keeps. It has no descriptor.
  static OutputFile in_memory(std::shared_ptr<HugeMemory> memory, std::string path);

  // Sets the size of the file, and reserves space on the disk for all of it if the file system can
  // do that without writing. On tmpfs no space is reserved. Bytes that were never written are zero.
  Status extend(uint64_t size) const;
  Result<uint64_t> size() const;
  Status write_at(uint64_t offset, std::span<const std::byte> data) const;
  // The file must be open for reading too; open_existing() opens it so.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;
  // Hints that the bytes of this range should begin to go to the disk, so that the sync at the end
  // has little left to wait for.
  void start_writeback(uint64_t offset, uint64_t size) const;
  // Calls fsync. After an error the whole file must be written anew: the system may have dropped
  // the bytes that it could not write, and the next fsync does not report them.
  Status sync() const;
  // Syncs the contents without the metadata (fdatasync).
  Status sync_data() const;
  // Calls sync() and closes the file; an error of either is returned.
  Status sync_and_close();
  // Makes sync() do nothing, so that the system decides when bytes reach the disk.
  void leave_unsynced() { synced_ = false; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::shared_ptr<HugeMemory> memory_;
  bool synced_ = true;
  std::string path_;
};

Status sync_directory(const std::string& path);
// Removes `path` and everything below it. Temporary and replaced bundles are removed so.
Status remove_tree(const std::string& path);

// Returns "inode N, N bytes, modified N, changed N", with times in nanoseconds. kIo if the file has
// changed since it was opened.
Result<std::string> state_of(const InputFile& file);

// Identifies the files that something was read from, and the state that they were in. A second base
// class of tensor sources that read files.
class FileState {
 public:
  virtual ~FileState() = default;
  // Returns a text that differs for another file and for another state of a file. kIo if a file has
  // changed since it was opened.
  virtual Result<std::string> state() const = 0;
};

}  // namespace ferry
