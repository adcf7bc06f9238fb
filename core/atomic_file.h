// write_atomically: after it, a file is there complete, or not at all, even if the process is
// killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/file.h"
#include "core/result.h"

namespace ferry {

enum class IfExists {
  kRefuse,   // kExists if the path exists
  kReplace,  // a regular file or a symbolic link is replaced in one step; anything else is an error
};

// Writes a whole file with AtomicFile.
Status write_atomically(const std::string& path, std::span<const std::byte> bytes,
                        IfExists existing);
Status write_atomically(const std::string& path, std::string_view text, IfExists existing);

// A file that gets its name after it has been written and synced (docs/crash_consistency.md).
// Before that, the file has no name if the file system supports O_TMPFILE, so that a killed process
// leaves nothing behind. On other file systems the file is `.NAME.ferry-part-RANDOM` beside the
// target, and locked; the next file of the same name removes those whose lock is free.
//
// Move-only. Several threads may write at distinct places.
class AtomicFile {
 public:
  AtomicFile() = default;
  ~AtomicFile();  // removes the file unless it was published
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;

  // Creates a file of `size` zero bytes and reserves space for it if the file system can. kUsage if
  // the path is not a file name; kIo if `existing` forbids the file, if the directory does not
  // exist, or if space is short. Thus errors that can be known early are reported before the work
  // begins.
  static Result<AtomicFile> create(const std::string& path, IfExists existing, uint64_t size);

  Status write_at(uint64_t offset, std::span<const std::byte> data) const {
    return file_.write_at(offset, data);
  }
  // Syncs the file, gives it its name, and syncs the directory. If the last step fails, the file is
  // complete but may not survive a power failure.
  Status publish();

 private:
  Status create_unnamed(uint64_t size, bool& supported);
  Status create_named(uint64_t size);
  Status link_new();
  Status link_replacing();
  Status rename_part();
  std::string sibling(std::string_view suffix) const;

  OutputFile file_;
  std::string path_, parent_, name_;
  std::string part_;  // the path to remove on destruction; empty while the file has no name
  IfExists existing_ = IfExists::kRefuse;
};

}  // namespace ferry
