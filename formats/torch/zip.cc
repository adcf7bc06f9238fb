#include "formats/torch/zip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::formats {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocatorSignature = 0x07064b50;
constexpr uint32_t kDescriptorSignature = 0x08074b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                 kLocatorBytes = 20, kLongestDescriptor = 24;
constexpr uint16_t kDescriptorFlag = 1u << 3;
// Bits 1 and 2 describe a compression level. Bit 11 says that the name is UTF-8.
constexpr uint16_t kAllowedFlags = 0x6u | kDescriptorFlag | 1u << 11;
constexpr uint16_t kStored = 0, kDeflate = 8;
constexpr uint64_t kMaxDeflateRatio = 1032;  // a match of 258 bytes takes two bits at least
constexpr uint32_t k32 = 0xffffffff;         // says that the value is in the zip64 field
constexpr uint16_t k16 = 0xffff;
constexpr uint16_t kZip64Field = 1;

using Bytes = std::span<const std::byte>;

// The caller has checked that the number lies inside of the range.
template <class T>
T number_at(Bytes bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}
uint16_t u16_at(Bytes bytes, size_t offset) { return number_at<uint16_t>(bytes, offset); }
uint32_t u32_at(Bytes bytes, size_t offset) { return number_at<uint32_t>(bytes, offset); }
uint64_t u64_at(Bytes bytes, size_t offset) { return number_at<uint64_t>(bytes, offset); }

Result<std::vector<std::byte>> read_bytes(const InputFile& file, uint64_t offset, size_t count) {
  std::vector<std::byte> out(count);
  FERRY_RETURN_IF_ERROR(file.read_at(offset, out));
  return out;
}

// The fields of the end record. Values that it refers to the zip64 record for are taken from there.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
};

class ZipReader {
 public:
  ZipReader(const InputFile& file, const std::string& name) : file_(file), name_(name) {}

  Result<std::vector<ZipEntry>> read();

 private:
  Failure bad(std::string_view what, uint64_t offset) const {
    return bad_input(fmt::format("{}: {} (offset {})", name_, what, offset));
  }
  Failure bad_entry(const ZipEntry& entry, std::string_view what) const {
    return bad_input(fmt::format("{}: the zip entry {} {} (offset {})", name_,
                                 quoted(entry.name, 100), what, entry.header));
  }

  Result<Directory> read_end() const;
  Result<Directory> read_end64(const Directory& end, uint64_t end_offset) const;
  Result<ZipEntry> parse_central(Bytes& rest, uint64_t offset) const;
  Status check_method(ZipEntry& entry, unsigned method) const;
  Status check_name(const ZipEntry& entry) const;
  Status check_local(ZipEntry& entry, uint64_t limit) const;
  Result<uint64_t> descriptor_bytes(const ZipEntry& entry, uint64_t limit) const;

  const InputFile& file_;
  const std::string& name_;
};

Result<Directory> ZipReader::read_end() const {
  if (file_.size() < kEndBytes) return bad("too short for a zip file", 0);
  const uint64_t at = file_.size() - kEndBytes;
  const auto record = FERRY_TRY(read_bytes(file_, at, kEndBytes));
  if (u32_at(record, 0) != kEndSignature || u16_at(record, 20) != 0) {
    return bad("no end record at the end of the zip file: cut, or followed by something", at);
  }
  const Directory end{u32_at(record, 16), u32_at(record, 12), u16_at(record, 10)};
  const bool has_locator =
      at >= kLocatorBytes + kEnd64Bytes &&
      u32_at(FERRY_TRY(read_bytes(file_, at - kLocatorBytes, 4)), 0) == kLocatorSignature;
  if (has_locator) return read_end64(end, at);
  if (u16_at(record, 4) != 0 || u16_at(record, 6) != 0 || u16_at(record, 8) != end.entries) {
    return bad("the zip file is one part of several", at);
  }
  if (end.offset + end.bytes != at) return bad("the zip directory is not before its end", at);
  return end;
}

Result<Directory> ZipReader::read_end64(const Directory& end, uint64_t end_offset) const {
  const uint64_t locator_at = end_offset - kLocatorBytes, at = locator_at - kEnd64Bytes;
  const auto records = FERRY_TRY(read_bytes(file_, at, kEnd64Bytes + kLocatorBytes));
  const Bytes record = Bytes(records).first(kEnd64Bytes);
  const Bytes locator = Bytes(records).subspan(kEnd64Bytes);
  if (u32_at(record, 0) != kEnd64Signature || u64_at(record, 4) != kEnd64Bytes - 12 ||
      u64_at(locator, 8) != at) {
    return bad("malformed zip64 end record", at);
  }
  const bool one_part = u32_at(locator, 4) == 0 && u32_at(locator, 16) <= 1 &&
                        u32_at(record, 16) == 0 && u32_at(record, 20) == 0 &&
                        u64_at(record, 24) == u64_at(record, 32);
  if (!one_part) return bad("the zip file is one part of several", at);
  const Directory wide{u64_at(record, 48), u64_at(record, 40), u64_at(record, 32)};
  const bool same = (end.offset == k32 || end.offset == wide.offset) &&
                    (end.bytes == k32 || end.bytes == wide.bytes) &&
                    (end.entries == k16 || end.entries == wide.entries);
  if (!same) return bad("the two end records of the zip file differ", at);
  if (checked_add(wide.offset, wide.bytes) != at) {
    return bad("the zip directory is not before its end", at);
  }
  return wide;
}

// Replaces each of `fields` that refers to the zip64 extra field by the next value of that field.
// Returns false if the extra field is too short.
bool resolve_zip64(Bytes extra, std::initializer_list<uint64_t*> fields) {
  Bytes values;
  while (extra.size() >= 4) {
    const size_t bytes = u16_at(extra, 2);
    if (bytes > extra.size() - 4) break;  // padding, which has no structure
    if (u16_at(extra, 0) == kZip64Field) {
      values = extra.subspan(4, bytes);
      break;
    }
    extra = extra.subspan(4 + bytes);
  }
  for (uint64_t* field : fields) {
    if (*field != k32) continue;
    if (values.size() < 8) return false;
    *field = u64_at(values, 0);
    values = values.subspan(8);
  }
  return true;
}

std::string name_text(Bytes bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Status ZipReader::check_name(const ZipEntry& entry) const {
  std::string_view name = entry.name;
  if (is_directory(entry)) name.remove_suffix(1);
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") {
      return bad_entry(entry, "does not have a plain relative name");
    }
    begin = end + 1;
  }
  if (name.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos) {
    return bad_entry(entry, "has a backslash or NUL in its name");
  }
  return {};
}

Status ZipReader::check_method(ZipEntry& entry, unsigned method) const {
  entry.deflated = method == kDeflate;
  if (method != kStored && method != kDeflate) {
    const std::string what = fmt::format("is compressed by method {}", method);
    return fail(ErrorCode::kUnsupported, bad_entry(entry, what).error().message);
  }
  if (!entry.deflated && entry.stored != entry.bytes) return bad_entry(entry, "has two sizes");
  if (entry.deflated && entry.bytes / kMaxDeflateRatio > entry.stored) {
    return bad_entry(entry, fmt::format("cannot hold {} bytes in {}", entry.bytes, entry.stored));
  }
  return {};
}

Result<ZipEntry> ZipReader::parse_central(Bytes& rest, uint64_t offset) const {
  if (rest.size() < kCentralBytes || u32_at(rest, 0) != kCentralSignature) {
    return bad("malformed zip directory", offset);
  }
  const size_t name_bytes = u16_at(rest, 28), extra_bytes = u16_at(rest, 30);
  const size_t total = kCentralBytes + name_bytes + extra_bytes + u16_at(rest, 32);
  if (total > rest.size()) return bad("malformed zip directory", offset);
  ZipEntry entry;
  entry.stored = u32_at(rest, 20);
  entry.name = name_text(rest.subspan(kCentralBytes, name_bytes));
  entry.header = u32_at(rest, 42);
  entry.bytes = u32_at(rest, 24);
  entry.crc = u32_at(rest, 16);
  entry.flags = u16_at(rest, 8);
  const bool resolved = resolve_zip64(rest.subspan(kCentralBytes + name_bytes, extra_bytes),
                                      {&entry.bytes, &entry.stored, &entry.header});
  if (!resolved) return bad_entry(entry, "has no sizes");
  if (u16_at(rest, 34) != 0) return bad_entry(entry, "is in another part");
  if (entry.flags & 1u) return bad_entry(entry, "is encrypted");
  if (entry.flags & ~kAllowedFlags) return bad_entry(entry, "has unknown flags");
  FERRY_RETURN_IF_ERROR(check_name(entry));
  FERRY_RETURN_IF_ERROR(check_method(entry, u16_at(rest, 10)));
  rest = rest.subspan(total);
  return entry;
}

// Returns the length of the record after the contents, which repeats CRC and sizes. The record may
// have a signature, and sizes of 4 or 8 bytes.
Result<uint64_t> ZipReader::descriptor_bytes(const ZipEntry& entry, uint64_t limit) const {
  const uint64_t at = entry.offset + entry.stored;  // lies inside of the file
  const auto record =
      FERRY_TRY(read_bytes(file_, at, std::min<uint64_t>(kLongestDescriptor, limit - at)));
  for (const size_t start : {size_t{4}, size_t{0}}) {
    if (start == 4 && (record.size() < 4 || u32_at(record, 0) != kDescriptorSignature)) continue;
    for (const size_t width : {size_t{8}, size_t{4}}) {
      const size_t end = start + 4 + 2 * width;
      if (end > record.size() || u32_at(record, start) != entry.crc) continue;
      const auto size_at = [&](size_t i) {
        return width == 8 ? u64_at(record, i) : uint64_t{u32_at(record, i)};
      };
      if (size_at(start + 4) == entry.stored && size_at(start + 4 + width) == entry.bytes) {
        return uint64_t{end};
      }
    }
  }
  return bad_entry(entry, "is not followed by its sizes");
}

// Compares the local header at entry.header with the directory and sets entry.offset. The entry
// must end at `limit`.
Status ZipReader::check_local(ZipEntry& entry, uint64_t limit) const {
  if (!range_inside(entry.header, kLocalBytes, limit)) return bad_entry(entry, "is cut");
  const auto fixed = FERRY_TRY(read_bytes(file_, entry.header, kLocalBytes));
  if (u32_at(fixed, 0) != kLocalSignature) return bad_entry(entry, "does not begin with a header");
  const size_t name_bytes = u16_at(fixed, 26), extra_bytes = u16_at(fixed, 28);
  entry.offset = entry.header + kLocalBytes + name_bytes + extra_bytes;
  if (!range_inside(entry.offset, entry.stored, limit)) return bad_entry(entry, "is cut");
  const auto texts =
      FERRY_TRY(read_bytes(file_, entry.header + kLocalBytes, name_bytes + extra_bytes));
  if (name_text(Bytes(texts).first(name_bytes)) != entry.name) {
    return bad_entry(entry, "has another name in its own header");
  }
  const unsigned method = entry.deflated ? kDeflate : kStored;
  if (u16_at(fixed, 6) != entry.flags || u16_at(fixed, 8) != method) {
    return bad_entry(entry, "has other flags or compression in its own header");
  }
  uint64_t bytes = u32_at(fixed, 22), stored = u32_at(fixed, 18);
  const bool resolved = resolve_zip64(Bytes(texts).subspan(name_bytes), {&bytes, &stored});
  const uint32_t crc = u32_at(fixed, 14);
  const bool described = (entry.flags & kDescriptorFlag) != 0;
  const auto agrees = [&](uint64_t here, uint64_t there) {
    return here == there || (described && here == 0);
  };
  if (!resolved || !agrees(bytes, entry.bytes) || !agrees(stored, entry.stored) ||
      !agrees(crc, entry.crc)) {
    return bad_entry(entry, "has another size or CRC in its own header");
  }
  uint64_t end = entry.offset + entry.stored;
  if (described) end += FERRY_TRY(descriptor_bytes(entry, limit));
  if (end != limit) return bad_entry(entry, "is followed by bytes that belong to no entry");
  return {};
}

Result<std::vector<ZipEntry>> ZipReader::read() {
  const Directory directory = FERRY_TRY(read_end());
  if (directory.bytes > kMaxZipDirectoryBytes) {
    return bad("the zip directory is too large", directory.offset);
  }
  if (directory.entries != 0 && directory.entries > directory.bytes / kCentralBytes) {
    return bad("the zip directory is too short for its entries", directory.offset);
  }
  const auto text = FERRY_TRY(read_bytes(file_, directory.offset, directory.bytes));
  std::vector<ZipEntry> entries;
  entries.reserve(directory.entries);
  Bytes rest = text;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    entries.push_back(FERRY_TRY(parse_central(rest, directory.offset + text.size() - rest.size())));
  }
  if (!rest.empty())
    return bad("bytes after the last entry of the zip directory", directory.offset);
  if (entries.empty()) return bad("an empty zip file", directory.offset);

  std::stable_sort(entries.begin(), entries.end(),
                   [](const ZipEntry& a, const ZipEntry& b) { return a.header < b.header; });
  if (entries[0].header != 0) return bad("bytes before the first zip entry", 0);
  if (entries.back().header >= directory.offset) {
    return bad_entry(entries.back(), "is not before the directory");
  }
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < entries.size(); ++i) {
    const bool last = i + 1 == entries.size();
    const uint64_t limit = last ? directory.offset : entries[i + 1].header;
    FERRY_RETURN_IF_ERROR(check_local(entries[i], limit));
    if (!names.insert(entries[i].name).second) return bad_entry(entries[i], "is there twice");
  }
  return entries;
}

}  // namespace

Result<std::vector<ZipEntry>> read_zip_directory(const InputFile& file, const std::string& name) {
  return ZipReader(file, name).read();
}

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
