#include "formats/torch/zip_contents.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr uint64_t kCheckedPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kInflatePieceBytes = uint64_t{64} << 10;
constexpr int kRawDeflate = -MAX_WBITS;  // deflate without a zlib header

uint32_t update_crc(uint32_t crc, std::span<const std::byte> data) {
  return static_cast<uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const unsigned char*>(data.data()), data.size()));
}

unsigned char* as_zlib(std::span<std::byte> bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

Failure bad(const ZipEntry& entry, std::string_view what, const std::string& name) {
  const std::string tensor =
      entry.tensor.empty() ? "" : fmt::format("tensor {}, ", quoted(entry.tensor, 120));
  return bad_input(fmt::format("{}: the contents of the zip entry {} {} ({}offset {})", name,
                               quoted(entry.name, 100), what, tensor, entry.offset));
}

Status compare_crc(uint32_t crc, const ZipEntry& entry, const std::string& name) {
  if (crc == entry.crc) return {};
  return bad(entry, "do not have its CRC: damaged", name);
}

// Frees zlib's state at the end of the scope.
struct InflateState {
  z_stream stream = {};
  bool ready = ::inflateInit2(&stream, kRawDeflate) == Z_OK;
  InflateState() = default;
  InflateState(const InflateState&) = delete;
  InflateState& operator=(const InflateState&) = delete;
  ~InflateState() {
    if (ready) ::inflateEnd(&stream);
  }
};

// Inflates an entry to `out`. The stream must end where both the stored bytes and `out` end.
Status inflate_to(const InputFile& file, const ZipEntry& entry, std::span<std::byte> out,
                  const std::string& name) {
  InflateState state;
  if (!state.ready) return fail(ErrorCode::kInternal, name + ": cannot begin to decompress");
  z_stream& stream = state.stream;
  std::vector<std::byte> piece(std::min(kInflatePieceBytes, entry.stored));
  uint64_t read = 0, made = 0;
  std::byte none{};  // zlib needs an address even if there are no bytes
  int result = Z_OK;
  while (result == Z_OK) {
    if (stream.avail_in == 0 && read < entry.stored) {
      const auto part =
          std::span(piece).first(std::min<uint64_t>(piece.size(), entry.stored - read));
      FERRY_RETURN_IF_ERROR(file.read_at(entry.offset + read, part));
      read += part.size();
      stream.next_in = as_zlib(part);
      stream.avail_in = static_cast<unsigned>(part.size());
    }
    const auto room = out.subspan(made, std::min<uint64_t>(kCheckedPieceBytes, out.size() - made));
    stream.next_out = room.empty() ? as_zlib({&none, 1}) : as_zlib(room);
    stream.avail_out = static_cast<unsigned>(room.size());
    result = ::inflate(&stream, Z_NO_FLUSH);
    made += room.size() - stream.avail_out;
  }
  const bool complete =
      result == Z_STREAM_END && made == out.size() && stream.avail_in == 0 && read == entry.stored;
  if (complete) return {};
  return bad(entry, fmt::format("do not decompress to {} bytes", out.size()), name);
}

}  // namespace

Status read_zip_entry_to(const InputFile& file, const ZipEntry& entry, std::span<std::byte> out,
                         const std::string& name) {
  if (out.size() != entry.bytes) return fail(ErrorCode::kInternal, name + ": wrong size of buffer");
  FERRY_RETURN_IF_ERROR(entry.deflated ? inflate_to(file, entry, out, name)
                                       : file.read_at(entry.offset, out));
  return compare_crc(update_crc(0, out), entry, name);
}

Result<std::vector<std::byte>> read_zip_entry(const InputFile& file, const ZipEntry& entry,
                                              uint64_t limit, const std::string& name) {
  if (entry.bytes > limit) {
    return bad_input(fmt::format("{}: the zip entry {} has {} bytes, more than {} (offset {})",
                                 name, quoted(entry.name, 100), entry.bytes, limit, entry.offset));
  }
  std::vector<std::byte> contents(entry.bytes);
  FERRY_RETURN_IF_ERROR(read_zip_entry_to(file, entry, contents, name));
  return contents;
}

Status check_stored_entry(const InputFile& file, const ZipEntry& entry, const std::string& name) {
  std::vector<std::byte> piece(std::min(kCheckedPieceBytes, entry.bytes));
  uint32_t crc = 0;
  for (uint64_t done = 0; done < entry.bytes; done += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), entry.bytes - done));
    FERRY_RETURN_IF_ERROR(file.read_at(entry.offset + done, piece));
    crc = update_crc(crc, piece);
  }
  return compare_crc(crc, entry, name);
}

}  // namespace ferry::formats
