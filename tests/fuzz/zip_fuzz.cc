// Input: a zip archive. Its directory is refused, or has the properties that zip.h promises.
// Contents are refused, or have the size and the CRC that the directory states.

#include "formats/torch/zip.h"

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"
#include "tests/fuzz/require.h"

namespace ferry::zip_fuzz {
namespace {

constexpr uint64_t kMaxContents = 4 << 20;

uint32_t crc_of(const std::vector<std::byte>& bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Checks that entries are ordered by offset, do not overlap, and lie in the file.
void check_places(const std::vector<formats::ZipEntry>& entries, uint64_t file_size) {
  uint64_t end = 0;
  std::set<std::string> names;
  for (const formats::ZipEntry& entry : entries) {
    require(entry.header >= end && entry.offset > entry.header);
    require(entry.offset <= file_size && entry.stored <= file_size - entry.offset);
    require(entry.deflated || entry.stored == entry.bytes);
    require(!entry.name.empty() && entry.name.front() != '/' && names.insert(entry.name).second);
    end = entry.offset + entry.stored;
  }
}

void read(const InputFile& file, const formats::ZipEntry& entry) {
  const auto contents = formats::read_zip_entry(file, entry, kMaxContents, "f");
  if (!contents) {
    require_good_message(contents.error());
  } else {
    require(contents->size() == entry.bytes && crc_of(*contents) == entry.crc);
  }
  if (entry.deflated || entry.bytes > kMaxContents) return;
  require(formats::check_stored_entry(file, entry, "f").has_value() == contents.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int descriptor = ::memfd_create("f", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  require(::ftruncate(descriptor, 0) == 0);
  require(::pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size));
  const auto file = InputFile::open(path);
  require(file.has_value());
  const auto entries = formats::read_zip_directory(*file, "f");
  if (!entries) {
    require_good_message(entries.error());
    return 0;
  }
  check_places(*entries, size);
  for (const formats::ZipEntry& entry : *entries) read(*file, entry);
  return 0;
}

}  // namespace ferry::zip_fuzz
