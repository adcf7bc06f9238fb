// Reads the contents of zip entries, uncompressed or compressed with deflate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "formats/torch/zip.h"

namespace ferry::formats {

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
