// read_zip_directory() reads zip archives as torch.save writes them, by the central directory.
// Entries are stored, or compressed with deflate, which other zip tools use.
//
// Stricter than the format, so that no two readers can see different contents: the first entry
// begins the file, entries follow each other without gaps and overlaps, the central directory and
// the end record (zip64 or not) end the file, and both headers of an entry agree in name, flags,
// method, sizes and CRC. Names are unique relative paths without "." and ".." in them; those of
// directories, which some tools write, end in a slash and have no contents. The size of
// a compressed entry is one that deflate can reach from what is stored, at most 1,032 times that;
// the contents have this size and the CRC to the byte, or reading them is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace ferry::formats {

struct ZipEntry {
  std::string name;
  uint64_t header = 0;  // offset of the local header
  uint64_t offset = 0;  // position of the first stored byte
  uint64_t stored = 0;  // stored bytes in the file
  uint64_t bytes = 0;   // bytes of the contents
  uint32_t crc = 0;     // CRC-32 of the contents, which read_zip_directory does not check
  uint16_t flags = 0;   // only bits 1 and 2 (meaningless here), 3 (descriptor) and 11 (UTF-8)
  bool deflated = false;
  std::string tensor = {};  // name of a tensor in the entry, for messages; may be empty
};

inline bool is_directory(const ZipEntry& entry) {
  return entry.bytes == 0 && entry.stored == 0 && entry.name.ends_with('/');
}

inline constexpr uint64_t kMaxZipDirectoryBytes = 64u << 20;

// Returns all entries by ascending offset. Checks all headers and reads no contents. `name` begins
// the messages. kUnsupported for compression methods other than deflate.
Result<std::vector<ZipEntry>> read_zip_directory(const InputFile& file, const std::string& name);

// Returns the contents of an entry of at most `limit` bytes, and checks their CRC. `name` begins
// the messages.
Result<std::vector<std::byte>> read_zip_entry(const InputFile& file, const ZipEntry& entry,
                                              uint64_t limit, const std::string& name);

// Reads the contents of an entry into `out`, which has their size, and checks their CRC. If the
// contents are shorter than stated, the rest of `out` is not touched.
Status read_zip_entry_to(const InputFile& file, const ZipEntry& entry, std::span<std::byte> out,
                         const std::string& name);

// Reads all of an uncompressed entry and compares the CRC, in constant memory.
Status check_stored_entry(const InputFile& file, const ZipEntry& entry, const std::string& name);

}  // namespace ferry::formats
