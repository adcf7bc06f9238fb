// Files: opened without blocking on FIFOs or devices, read with pread, written with explicit sync.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/unique_fd.h"

namespace ferry {

// A regular file open for reading. Move-only, closes itself. Thread-safe for reads.
//
// Checkpoints can have more files than a process may have open. So only some have a descriptor at a
// time; the others are opened again when they are read, and it is an error if that is not the same
// file in the same state.
class InputFile {
 public:
  enum class Links { kFollow, kRefuse };  // where the path itself is a symbolic link
  // Keeps the descriptor open as long as it lives, which must not be longer than the file does.
  class Descriptor;

  InputFile();
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  // Refuses anything but a regular file before an open could block. `path` is used in messages.
  static Result<InputFile> open(const std::string& path, Links links = Links::kFollow);
  // Opens `file`, a path relative to the open directory `directory`. `path` is used in messages,
  // and to open the file again; it is an error then if that is another file.
  static Result<InputFile> open_at(int directory, const std::string& file, const std::string& path,
                                   Links links);

  uint64_t size() const;
  const std::string& path() const;
  Result<Descriptor> descriptor() const;

  // All of `out`, or an error: kIo on a read error and when the file ends early.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;
  // kIo unless size and times of change are still those seen by open(). The time of the last change
  // of its state (ctime) is among them, because tools that set the other one back cannot set that.
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

// The number of files that this process may have open.
size_t most_open_files();
// Raises that number to the most that the system allows.
void raise_most_open_files();

// Reads a whole small text file, which may have at most `limit` bytes.
Result<std::string> read_text_file(const std::string& path, uint64_t limit);
Result<std::string> read_text(const InputFile& file, uint64_t limit);

// A read-only private mapping of a whole file. Only for bundles and programs, whose digests are
// known; checkpoints are read with InputFile, because a mapped file that shrinks raises SIGBUS.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  static Result<MappedFile> open(const std::string& path);
  // Maps the file that `file` has open, even if its name means another one by now.
  static Result<MappedFile> map(const InputFile& file);
  // Valid as long as this object lives.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// A file for positioned writes. Move-only. Thread-safe for writes at distinct places. A file that
// must be complete or absent is written with AtomicFile (core/atomic_file.h).
class OutputFile {
 public:
  // Creates a new file (O_EXCL) and extends it to `size`.
  static Result<OutputFile> create(const std::string& path, uint64_t size);
  // Opens an existing file, to be read and written in place. kIo unless it is a regular file that
  // has this name only (no symbolic link, no further hard link).
  static Result<OutputFile> open_existing(const std::string& path);
  // Takes a descriptor that is open for writing. `path` is used in messages.
  static OutputFile adopt(UniqueFd fd, std::string path);

  // Makes it `size` bytes long, and reserves space on the disk for all of them where the file
  // system can do that without writing. In memory (tmpfs) nothing is reserved. What was not written
  // before is zero.
  Status extend(uint64_t size) const;
  Result<uint64_t> size() const;
  Status write_at(uint64_t offset, std::span<const std::byte> data) const;
  // The file must be open for reading too, as open_existing() opens it.
  Status read_at(uint64_t offset, std::span<std::byte> out) const;
  // A hint: written bytes of this range should begin to go to the disk, so that the sync at the end
  // has little left to wait for.
  void start_writeback(uint64_t offset, uint64_t size) const;
  // fsync. After an error the file must be written anew: the system may have dropped what it could
  // not write, and say nothing about it the next time.
  Status sync() const;
  // Syncs the contents alone (fdatasync).
  Status sync_data() const;
  // sync() and close; errors of either are reported.
  Status sync_and_close();
  // Turns sync() into nothing: written bytes reach the disk when the system wants.
  void leave_unsynced() { synced_ = false; }
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  bool synced_ = true;
  std::string path_;
};

Status sync_directory(const std::string& path);
// Removes `path` and everything below it; used for temporary and replaced bundles.
Status remove_tree(const std::string& path);

}  // namespace ferry
