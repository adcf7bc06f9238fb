// The file of a patch: its head, table and tail, and PatchFile, which is a patch that is open and
// whose every byte has been checked. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/sha256.h"

namespace ferry::patch {

// -- the table: the files of the old folder that the patch reads, and for each file of the new
// folder the operations that make it. docs/updates.md is the specification.

inline constexpr std::string_view kMagic = "FERRYPAT";
inline constexpr uint32_t kVersion = 1;
// The head has the magic, the version (u32) and zero (u32).
inline constexpr uint64_t kHeadBytes = 16;
// The tail has the offset, the stored size and the size of the table (u64 each), and the SHA-256 of
// all bytes before that digest.
inline constexpr uint64_t kDigestBytes = sizeof(Digest);
inline constexpr uint64_t kTailBytes = 3 * 8 + kDigestBytes;
// An operation other than a copy makes at most this many bytes.
inline constexpr uint64_t kMaxBlockBytes = uint64_t{4} << 20;
// Its payload has at most this many bytes: what zstd cannot compress grows by 1/256 and the heads
// of the frames.
inline constexpr uint64_t kMaxStoredBytes = kMaxBlockBytes + (uint64_t{64} << 10);
inline constexpr uint64_t kMaxTableBytes = uint64_t{64} << 20;
inline constexpr uint32_t kMaxFiles = 65536;

enum class OpKind : uint8_t {
  kCopy = 0,    // bytes of an old file
  kData = 1,    // bytes of the patch, as planes
  kDense = 2,   // differences from an old file, one for each element
  kSparse = 3,  // differences of those elements that differ
};
inline constexpr uint8_t kOpKinds = 4;

// Makes the next `bytes` bytes of a new file.
struct Op {
  OpKind kind = OpKind::kCopy;
  uint8_t width = 0;        // bytes of an element: 1, 2, 4 or 8; 0 for a copy
  uint32_t old_file = 0;    // index into Table::old_files; 0 for data
  uint64_t bytes = 0;       // not 0; a multiple of `width`
  uint64_t old_offset = 0;  // 0 for data
  uint64_t stored = 0;      // bytes of the payload; 0 for a copy
};

struct FileEntry {
  std::string name;  // a plain file name
  uint64_t bytes = 0;
  Digest sha256 = {};
};
struct NewFile {
  FileEntry file;
  std::vector<Op> ops;

  // Returns whether the file is one of the old ones as a whole.
  bool is_copy_of(const FileEntry& old) const {
    return ops.size() == 1 && ops[0].kind == OpKind::kCopy && ops[0].bytes == old.bytes;
  }
};
struct Table {
  std::vector<FileEntry> old_files;  // in ascending order of names; each is read by an operation
  std::vector<NewFile> new_files;    // in ascending order of names

  bool has_new_file(std::string_view name) const;
  uint64_t new_bytes() const;
};

std::vector<std::byte> write_table(const Table& table);

// Checks every count and every range: the result can be applied without looking at its numbers
// again. `payload_bytes` is the size of what all operations take from the patch together. `name`
// begins the messages.
Result<Table> read_table(std::span<const std::byte> bytes, uint64_t payload_bytes,
                         const std::string& name);

class PatchFile {
 public:
  // Compares the digest of the file, then reads the table. kBadInput for a damaged file,
  // kUnsupported for a later version. `progress` counts the bytes of the patch.
  static Result<PatchFile> open(const std::string& path, const ShowProgress& progress);

  const Table& table() const { return table_; }
  const InputFile& file() const { return file_; }
  // Reads the payload of an operation. `offset` is the sum of what the operations before it take.
  Status read_payload(uint64_t offset, std::span<std::byte> out) const {
    return file_.read_at(kHeadBytes + offset, out);
  }

 private:
  InputFile file_;
  Table table_;
};

// Writes head, payload and tail in their order.
class PatchBytes {
 public:
  static std::vector<std::byte> head();
  // The tail without the digest, for a table at this place.
  static std::vector<std::byte> tail(uint64_t table_offset, uint64_t stored, uint64_t bytes);
};

}  // namespace ferry::patch
