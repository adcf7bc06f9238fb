// Zip archives as torch.save writes them: stored entries only, read by the central directory alone.
//
// Stricter than the format, so that no two readers can see different contents: the first entry
// begins the file, entries follow each other without gaps and overlaps, the central directory and
// the end record (zip64 or not) end the file, and both headers of an entry agree in name, flags,
// method, sizes and CRC. Names are unique relative paths without "." and ".." in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"

namespace ferry {

struct ZipEntry {
  std::string name;
  uint64_t header = 0;  // offset of the local header
  uint64_t offset = 0;  // of the first byte of the contents
  uint64_t bytes = 0;
  uint32_t crc = 0;    // of the contents, not checked by read_zip_directory
  uint16_t flags = 0;  // only bits 1 and 2 (meaningless here), 3 (descriptor) and 11 (UTF-8)
};

inline constexpr uint64_t kMaxZipDirectoryBytes = 64u << 20;

// All entries in the order of their offsets. Checks all headers, reads no contents. `name` begins
// the messages. kUnsupported for compressed entries.
Result<std::vector<ZipEntry>> read_zip_directory(const InputFile& file, const std::string& name);

// The CRC of contents that come in pieces: zip_crc(zip_crc(0, a), b).
uint32_t zip_crc(uint32_t crc, std::span<const std::byte> data);

// The contents of an entry of at most `limit` bytes; its CRC is checked.
Result<std::vector<std::byte>> read_zip_entry(const InputFile& file, const ZipEntry& entry,
                                              uint64_t limit, const std::string& name);

// The error for contents that do not have the CRC of their entry.
tl::unexpected<Error> zip_crc_error(const ZipEntry& entry, const std::string& name);

}  // namespace ferry
