#include "patch/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/checked.h"
#include "core/text.h"
#include "packer/manifest_json.h"

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

}  // namespace ferry::patch
