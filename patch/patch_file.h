// PatchFile is a patch that is open and whose every byte has been checked. Private to patch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/progress.h"
#include "core/result.h"
#include "patch/table.h"

namespace ferry::patch {

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
