// Reads the contents of zip entries, stored or deflated.
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

// The contents of an entry of at most `limit` bytes; its CRC is checked. `name` begins the
// messages.
Result<std::vector<std::byte>> read_zip_entry(const InputFile& file, const ZipEntry& entry,
                                              uint64_t limit, const std::string& name);

// Reads them into `out`, which has the size of the contents. If the contents are shorter than
// stated, the rest of `out` is not touched.
Status read_zip_entry_to(const InputFile& file, const ZipEntry& entry, std::span<std::byte> out,
                         const std::string& name);

// Reads all of a stored entry and compares the CRC, in constant memory.
Status check_stored_entry(const InputFile& file, const ZipEntry& entry, const std::string& name);

}  // namespace ferry::formats
