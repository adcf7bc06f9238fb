#include "patch/patch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/checked.h"
#include "core/interrupt.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/manifest_json.h"
#include "patch/frames.h"

namespace ferry::patch {
namespace {

// Sizes of files are bounded so that no sum of offsets overflows.
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;
constexpr size_t kOpBytes = 1 + 1 + 4 + 8 + 8 + 8;

class TableWriter {
 public:
  template <class T>
  void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      out_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  void file(const FileEntry& file) {
    number(static_cast<uint16_t>(file.name.size()));
    const auto name = std::as_bytes(std::span(file.name));
    out_.insert(out_.end(), name.begin(), name.end());
    number(file.bytes);
    out_.insert(out_.end(), file.sha256.begin(), file.sha256.end());
  }
  void op(const Op& op) {
    number(static_cast<uint8_t>(op.kind));
    number(op.width);
    number(op.old_file);
    number(op.bytes);
    number(op.old_offset);
    number(op.stored);
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

class TableReader {
 public:
  TableReader(std::span<const std::byte> bytes, uint64_t payload_bytes, const std::string& name)
      : bytes_(bytes), payload_left_(payload_bytes), name_(name) {}

  Result<Table> read() {
    const auto old_count = FERRY_TRY(count(kMaxFiles));
    for (uint32_t i = 0; i < old_count; ++i) {
      table_.old_files.push_back(FERRY_TRY(file(i == 0 ? nullptr : &table_.old_files.back())));
    }
    used_.assign(old_count, false);
    const auto new_count = FERRY_TRY(count(kMaxFiles));
    for (uint32_t i = 0; i < new_count; ++i) {
      const FileEntry* before = i == 0 ? nullptr : &table_.new_files.back().file;
      NewFile made;
      made.file = FERRY_TRY(file(before));
      made.ops = FERRY_TRY(ops(made.file));
      table_.new_files.push_back(std::move(made));
    }
    FERRY_RETURN_IF_ERROR(check_end());
    return std::move(table_);
  }

 private:
  Failure wrong(const std::string& what) const {
    return bad_input(fmt::format("{}: table, offset {}: {}", printable(name_), at_, what));
  }

  template <class T>
  Result<T> number() {
    if (bytes_.size() - at_ < sizeof(T)) return wrong("the table ends early");
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= std::to_integer<uint64_t>(bytes_[at_ + i]) << (8 * i);
    }
    at_ += sizeof(T);
    return static_cast<T>(value);
  }

  Result<uint32_t> count(uint32_t limit) {
    const auto value = FERRY_TRY(number<uint32_t>());
    if (value > limit) return wrong(fmt::format("{} files, more than {}", value, limit));
    return value;
  }

  Result<FileEntry> file(const FileEntry* before) {
    const auto length = FERRY_TRY(number<uint16_t>());
    if (bytes_.size() - at_ < length) return wrong("the table ends early");
    FileEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    if (!packer::is_plain_file_name(entry.name)) {
      return wrong(fmt::format("{} is not a plain file name", quoted(entry.name)));
    }
    if (before != nullptr && before->name >= entry.name) {
      return wrong(fmt::format("{} is not in ascending order", quoted(entry.name)));
    }
    entry.bytes = FERRY_TRY(number<uint64_t>());
    if (entry.bytes > kMaxFileBytes) {
      return wrong(fmt::format("{} has {} bytes", quoted(entry.name), entry.bytes));
    }
    if (bytes_.size() - at_ < entry.sha256.size()) return wrong("the table ends early");
    std::memcpy(entry.sha256.data(), bytes_.data() + at_, entry.sha256.size());
    at_ += entry.sha256.size();
    return entry;
  }

  Result<std::vector<Op>> ops(const FileEntry& file) {
    const auto op_count = FERRY_TRY(number<uint32_t>());
    if (op_count > (bytes_.size() - at_) / kOpBytes) {
      return wrong(fmt::format("{}: {} operations do not fit", quoted(file.name), op_count));
    }
    std::vector<Op> list;
    list.reserve(op_count);
    uint64_t left = file.bytes;
    for (uint32_t i = 0; i < op_count; ++i) {
      list.push_back(FERRY_TRY(op(file, left)));
      left -= list.back().bytes;
    }
    if (left == 0) return list;
    return wrong(fmt::format("{}: {} bytes have no operation", quoted(file.name), left));
  }

  Result<Op> op(const FileEntry& file, uint64_t left) {
    const size_t start = at_;
    const auto kind = FERRY_TRY(number<uint8_t>());
    Op op;
    op.kind = static_cast<OpKind>(kind);
    op.width = FERRY_TRY(number<uint8_t>());
    op.old_file = FERRY_TRY(number<uint32_t>());
    op.bytes = FERRY_TRY(number<uint64_t>());
    op.old_offset = FERRY_TRY(number<uint64_t>());
    op.stored = FERRY_TRY(number<uint64_t>());
    if (const char* problem = kind < kOpKinds ? problem_of(op, left) : "an unknown operation") {
      at_ = start;
      return wrong(fmt::format("{}: {}", quoted(file.name), problem));
    }
    payload_left_ -= op.stored;
    if (op.kind != OpKind::kData) used_[op.old_file] = true;
    return op;
  }

  const char* problem_of(const Op& op, uint64_t left) const {
    if (op.bytes == 0 || op.bytes > left) return "an operation goes beyond the end of the file";
    if (op.kind == OpKind::kData) {
      if (op.old_file != 0 || op.old_offset != 0) return "data that name an old file";
    } else {
      if (op.old_file >= table_.old_files.size()) return "an old file that is not listed";
      if (!range_inside(op.old_offset, op.bytes, table_.old_files[op.old_file].bytes)) {
        return "a range outside of the old file";
      }
    }
    if (op.kind == OpKind::kCopy) {
      return op.width == 0 && op.stored == 0 ? nullptr : "a copy with a payload";
    }
    if (op.width != 1 && op.width != 2 && op.width != 4 && op.width != 8) {
      return "an unknown width of elements";
    }
    if (op.bytes > kMaxBlockBytes || op.bytes % op.width != 0) return "a wrong size of a block";
    if (op.stored == 0 || op.stored > payload_left_) return "a payload outside of the patch";
    if (op.stored > kMaxStoredBytes) return "a payload that is larger than any block";
    return nullptr;
  }

  Status check_end() const {
    if (at_ != bytes_.size()) return wrong("bytes behind the end of the table");
    if (payload_left_ != 0) {
      return wrong(fmt::format("{} bytes of the payload have no operation", payload_left_));
    }
    const auto unused = std::ranges::find(used_, false);
    if (unused == used_.end()) return {};
    const FileEntry& file = table_.old_files[static_cast<size_t>(unused - used_.begin())];
    return wrong(fmt::format("no operation reads the old file {}", quoted(file.name)));
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  uint64_t payload_left_;
  const std::string& name_;
  Table table_;
  std::vector<bool> used_;  // by index of the old file
};

}  // namespace

bool Table::has_new_file(std::string_view name) const {
  return std::ranges::any_of(new_files, [&](const NewFile& f) { return f.file.name == name; });
}

uint64_t Table::new_bytes() const {
  uint64_t sum = 0;
  for (const NewFile& made : new_files) {
    sum = checked_add(sum, made.file.bytes).value_or(std::numeric_limits<uint64_t>::max());
  }
  return sum;
}

std::vector<std::byte> write_table(const Table& table) {
  TableWriter out;
  out.number(static_cast<uint32_t>(table.old_files.size()));
  for (const FileEntry& file : table.old_files) out.file(file);
  out.number(static_cast<uint32_t>(table.new_files.size()));
  for (const NewFile& made : table.new_files) {
    out.file(made.file);
    out.number(static_cast<uint32_t>(made.ops.size()));
    for (const Op& op : made.ops) out.op(op);
  }
  return out.take();
}

Result<Table> read_table(std::span<const std::byte> bytes, uint64_t payload_bytes,
                         const std::string& name) {
  return TableReader(bytes, payload_bytes, name).read();
}

namespace {

constexpr uint64_t kPatchReadBytes = uint64_t{1} << 20;

void append(std::vector<std::byte>& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

uint64_t number_at(std::span<const std::byte> bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= std::to_integer<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

Failure wrong(const InputFile& file, const std::string& what) {
  return bad_input(fmt::format("{}: {}", printable(file.path()), what));
}

Status check_head(const InputFile& file) {
  const std::string shape = fmt::format("is not a patch: {} bytes", file.size());
  if (file.size() < kHeadBytes + kTailBytes) return wrong(file, shape);
  std::vector<std::byte> head(kHeadBytes);
  FERRY_RETURN_IF_ERROR(file.read_at(0, head));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return wrong(file, "is not a patch: offset 0 does not have \"FERRYPAT\"");
  }
  const uint64_t version = number_at(head, kMagic.size(), 4);
  if (version == kVersion) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: a patch of version {}, and this program reads version {}",
                          printable(file.path()), version, kVersion));
}

Status check_digest(const InputFile& file, const ShowProgress& progress) {
  const uint64_t hashed = file.size() - kDigestBytes;
  Sha256 hash;
  std::vector<std::byte> buffer(std::min(kPatchReadBytes, hashed));
  for (uint64_t at = 0; at < hashed;) {
    FERRY_RETURN_IF_ERROR(check_interrupt());
    const auto tile = std::span(buffer).first(std::min<uint64_t>(buffer.size(), hashed - at));
    FERRY_RETURN_IF_ERROR(file.read_at(at, tile));
    hash.update(tile);
    at += tile.size();
    if (progress) progress(at, hashed);
  }
  Digest stated;
  FERRY_RETURN_IF_ERROR(file.read_at(hashed, stated));
  if (hash.finish() == stated) return {};
  return wrong(file, "the patch is damaged or not whole: its SHA-256 differs");
}

Result<Table> read_stored_table(const InputFile& file) {
  const uint64_t end = file.size() - kTailBytes;
  std::vector<std::byte> tail(kTailBytes);
  FERRY_RETURN_IF_ERROR(file.read_at(end, tail));
  const uint64_t offset = number_at(tail, 0, 8), stored = number_at(tail, 8, 8);
  const uint64_t bytes = number_at(tail, 16, 8);
  if (offset < kHeadBytes || offset > end || stored != end - offset || stored > kMaxTableBytes ||
      bytes > kMaxTableBytes) {
    return wrong(file, fmt::format("offset {}: the table has a wrong place or size", end));
  }
  std::vector<std::byte> frame_bytes(stored);
  FERRY_RETURN_IF_ERROR(file.read_at(offset, frame_bytes));
  std::span<const std::byte> rest = frame_bytes;
  const auto frame = take_frame(rest);
  if (!frame || !rest.empty() || frame->bytes != bytes) {
    return wrong(file, fmt::format("offset {}: the table is not a zstd frame", offset));
  }
  std::vector<std::byte> table(bytes);
  if (!decompress(*frame, table)) {
    return wrong(file, fmt::format("offset {}: the table does not decompress", offset));
  }
  return read_table(table, offset - kHeadBytes, file.path());
}

}  // namespace

Result<PatchFile> PatchFile::open(const std::string& path, const ShowProgress& progress) {
  PatchFile patch;
  patch.file_ = FERRY_TRY(InputFile::open(path));
  FERRY_RETURN_IF_ERROR(check_head(patch.file_));
  FERRY_RETURN_IF_ERROR(check_digest(patch.file_, progress));
  patch.table_ = FERRY_TRY(read_stored_table(patch.file_));
  return patch;
}

std::vector<std::byte> PatchBytes::head() {
  std::vector<std::byte> out;
  for (const char c : kMagic) out.push_back(static_cast<std::byte>(c));
  append(out, kVersion, 4);
  append(out, 0, 4);
  return out;
}

std::vector<std::byte> PatchBytes::tail(uint64_t table_offset, uint64_t stored, uint64_t bytes) {
  std::vector<std::byte> out;
  append(out, table_offset, 8);
  append(out, stored, 8);
  append(out, bytes, 8);
  return out;
}

}  // namespace ferry::patch
