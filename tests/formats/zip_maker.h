// Makes zip files, valid or invalid.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

// An entry. Its headers need not be true.
struct ZipItem {
  std::string name;
  uint16_t method = 0;
  std::string stored;  // bytes in the file
  uint32_t bytes = 0;  // size of the contents
  uint32_t crc = 0;    // CRC of the contents
};

inline uint32_t crc_of(std::string_view text) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size()));
}

// Returns a raw deflate stream.
inline std::string deflated(std::string_view text) {
  std::string out(text.size() + text.size() / 1000 + 64, '\0');
  z_stream stream = {};
  ::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<unsigned>(text.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<unsigned>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

inline ZipItem stored_item(std::string name, std::string_view text) {
  return {std::move(name), 0, std::string(text), static_cast<uint32_t>(text.size()), crc_of(text)};
}

inline ZipItem deflated_item(std::string name, std::string_view text) {
  return {std::move(name), 8, deflated(text), static_cast<uint32_t>(text.size()), crc_of(text)};
}

namespace zip_maker {

// Appends `value` in `size` bytes, little-endian.
inline void put(std::string& out, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i));
}

// Appends the fields that both headers of an entry have, from the version on.
inline void put_common(std::string& out, const ZipItem& item) {
  for (const unsigned field : {20u, 0u, unsigned{item.method}, 0u, 0x21u}) put(out, field, 2);
  for (const uint64_t field : {uint64_t{item.crc}, uint64_t{item.stored.size()},
                               uint64_t{item.bytes}, uint64_t{item.name.size()}}) {
    put(out, field, 4);  // the last field includes the length of the extra field, 0
  }
}

}  // namespace zip_maker

inline std::string make_zip(const std::vector<ZipItem>& items) {
  using zip_maker::put;
  std::string out, directory;
  for (const ZipItem& item : items) {
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    zip_maker::put_common(directory, item);
    put(directory, 0, 6);  // comment, part, attributes
    put(directory, 0, 4);
    put(directory, out.size(), 4);
    directory += item.name;
    put(out, 0x04034b50, 4);
    zip_maker::put_common(out, item);
    out += item.name + item.stored;
  }
  const size_t at = out.size();
  out += directory;
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, items.size(), 2);
  put(out, items.size(), 2);
  put(out, directory.size(), 4);
  put(out, at, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace ferry
