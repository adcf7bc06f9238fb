// write_atomically: a file that is there complete, or not at all, whatever happens meanwhile.
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
  kRefuse,   // an error, and what has the name is left alone
  kReplace,  // a regular file or a symbolic link gives way, in one step; anything else does not
};

// Writes a whole file, as AtomicFile does.
Status write_atomically(const std::string& path, std::span<const std::byte> bytes,
                        IfExists existing);
Status write_atomically(const std::string& path, std::string_view text, IfExists existing);

// A file that gets its name when it has been written and synced (docs/crash_consistency.md).
// Until then it has none where the file system knows files without a name (O_TMPFILE), so that
// nothing is left of a killed process. Elsewhere it is `.NAME.ferry-part-RANDOM` beside the target,
// locked; the next file for the same name removes those whose lock is free.
//
// Move-only. Writes at distinct places may be made by several threads.
class AtomicFile {
 public:
  AtomicFile() = default;
  ~AtomicFile();  // without publish(), nothing is left
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;

  // `size` bytes of zeros, for which space is reserved where the file system can do that. kUsage
  // if the path is no name for a file; kIo if `existing` forbids it, if there is no such directory
  // or if space is short. So errors that can be known early come before the work.
  static Result<AtomicFile> create(const std::string& path, IfExists existing, uint64_t size);

  Status write_at(uint64_t offset, std::span<const std::byte> data) const {
    return file_.write_at(offset, data);
  }
  // Syncs the file, gives it its name, syncs the directory. An error of the last step leaves a
  // complete file that may not survive a power failure.
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
  std::string part_;  // the path that is to be removed; empty while the file has no name
  IfExists existing_ = IfExists::kRefuse;
};

}  // namespace ferry
