// Parses a zip file, changes the contents of one entry, and writes the file again with correct
// sizes and CRCs, stored or deflated. Sometimes it changes the bytes of the file instead.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/formats/zip_maker.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using ferry::ZipItem;

uint64_t number(std::string_view text, size_t at, size_t size) {
  uint64_t value = 0;
  if (at <= text.size() && size <= text.size() - at) std::memcpy(&value, text.data() + at, size);
  return value;
}

// Returns the entries that the directory at the end names; none if the directory is malformed.
std::vector<ZipItem> take_apart(std::string_view zip) {
  std::vector<ZipItem> items;
  if (zip.size() < 22) return items;
  const size_t end = zip.size() - 22;
  size_t at = number(zip, end + 16, 4);
  for (uint64_t left = number(zip, end + 10, 2); left > 0; --left) {
    if (at > end || end - at < 46 || zip.substr(at, 4) != "PK\x01\x02") return {};
    const size_t name_bytes = number(zip, at + 28, 2), local = number(zip, at + 42, 4);
    const size_t stored = number(zip, at + 20, 4);
    const size_t data = local + 30 + number(zip, local + 26, 2) + number(zip, local + 28, 2);
    if (at + 46 + name_bytes > end || data > end || stored > end - data) return {};
    items.push_back({std::string(zip.substr(at + 46, name_bytes)),
                     static_cast<uint16_t>(number(zip, at + 10, 2)),
                     std::string(zip.substr(data, stored)),
                     static_cast<uint32_t>(number(zip, at + 24, 4)),
                     static_cast<uint32_t>(number(zip, at + 16, 4))});
    at += 46 + name_bytes + number(zip, at + 30, 2) + number(zip, at + 32, 2);
  }
  return items;
}

void change(ZipItem& item, unsigned seed) {
  std::string text = item.stored;
  const size_t size = text.size();
  text.resize(size + 256);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, text.size()));
  if (item.method == 8) {  // an invalid stream in a valid zip file
    item.stored = text;
  } else {
    item =
        seed % 4 == 0 ? ferry::deflated_item(item.name, text) : ferry::stored_item(item.name, text);
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  std::vector<ZipItem> items;
  if (seed % 8 != 0) items = take_apart({reinterpret_cast<const char*>(data), size});
  if (items.empty()) return LLVMFuzzerMutate(data, size, max_size);
  change(items[(seed >> 8) % items.size()], seed >> 4);
  const std::string zip = ferry::make_zip(items);
  if (zip.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, zip.data(), zip.size());
  return zip.size();
}
