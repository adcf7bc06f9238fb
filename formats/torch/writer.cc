#include "formats/torch/writer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <optional>
#include <string_view>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kFolder = "archive/";
constexpr uint64_t kContentsAlignment = 64;  // torch aligns contents so
constexpr uint64_t kZip64Limit = 0xFFFFFFFF;
constexpr size_t kZip64EntriesLimit = 0xFFFF;
constexpr uint16_t kDosDate = 0x21;  // 1980-01-01, the first date that the format can state

struct StorageClass {
  DType dtype;
  std::string_view name;
};
constexpr StorageClass kStorageClasses[] = {
    {DType::kF32, "FloatStorage"},  {DType::kF16, "HalfStorage"}, {DType::kBF16, "BFloat16Storage"},
    {DType::kF64, "DoubleStorage"}, {DType::kI64, "LongStorage"}, {DType::kI32, "IntStorage"},
    {DType::kI16, "ShortStorage"},  {DType::kI8, "CharStorage"},  {DType::kU8, "ByteStorage"},
    {DType::kBool, "BoolStorage"},
};

std::string_view storage_class(DType dtype) {
  for (const StorageClass& row : kStorageClasses) {
    if (row.dtype == dtype) return row.name;
  }
  return {};
}

// Appends bytes, and integers in little-endian order.
class LittleEndianBytes {
 public:
  LittleEndianBytes& text(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  template <class Int>
  LittleEndianBytes& integer(Int value) {
    for (size_t i = 0; i < sizeof(Int); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i)));
    }
    return *this;
  }
  uint64_t size() const { return bytes_.size(); }
  std::vector<std::byte> take() { return std::move(bytes_); }
  const std::vector<std::byte>& get() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// -- the pickle of protocol 2, with opcodes that the restricted unpickler of torch accepts

class Pickler {
 public:
  LittleEndianBytes take(std::span<const TorchTensorSpec> tensors) {
    out_.text("\x80\x02}(");  // PROTO 2, EMPTY_DICT, MARK
    for (const TorchTensorSpec& tensor : tensors) {
      text(tensor.name);
      add(tensor);
    }
    out_.text("u.");  // SETITEMS, STOP
    return std::move(out_);
  }

 private:
  // Writes _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks).
  void add(const TorchTensorSpec& tensor) {
    const int64_t elements = checked_numel(tensor.shape).value_or(0);
    out_.text("ctorch._utils\n_rebuild_tensor_v2\n(");
    add_storage(tensor, elements);
    integer(0);
    out_.text("(");
    for (const int64_t size : tensor.shape) integer(size);
    out_.text("t(");
    int64_t stride = 1;
    std::vector<int64_t> strides(tensor.shape.size());
    for (size_t i = tensor.shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= std::max<int64_t>(tensor.shape[i], 1);
    }
    for (const int64_t each : strides) integer(each);
    out_.text("t\x89");  // NEWFALSE
    out_.text("ccollections\nOrderedDict\n)R");
    out_.text("tR");
  }

  // Writes the persistent id of a storage.
  void add_storage(const TorchTensorSpec& tensor, int64_t elements) {
    out_.text("(");
    text("storage");
    out_.text("ctorch\n").text(storage_class(tensor.dtype)).text("\n");
    text(std::to_string(tensor.storage));
    text("cpu");
    integer(elements);
    out_.text("tQ");  // TUPLE, BINPERSID
  }

  void text(std::string_view text) {
    out_.text("X").integer(static_cast<uint32_t>(text.size())).text(text);
  }

  void integer(int64_t value) {
    if (value <= 0xFF) {
      out_.text("K").integer(static_cast<uint8_t>(value));
    } else if (value <= 0xFFFF) {
      out_.text("M").integer(static_cast<uint16_t>(value));
    } else if (value <= 0x7FFFFFFF) {
      out_.text("J").integer(static_cast<uint32_t>(value));
    } else {
      out_.text("\x8a\x08").integer(value);  // LONG1 of eight bytes
    }
  }

  LittleEndianBytes out_;
};

// -- the archive

struct Entry {
  std::string name;
  uint64_t header = 0, offset = 0, bytes = 0;
  uint32_t crc = 0;
};

class Archive {
 public:
  // Adds an entry whose bytes are known.
  void add(const std::string& name, std::vector<std::byte> bytes) {
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    const auto crc = static_cast<uint32_t>(::crc32_z(0, data, bytes.size()));
    begin(name, bytes.size(), crc);
    layout_.known.emplace_back(end_, std::move(bytes));
    end_ += entries_.back().bytes;
  }
  // Adds an entry whose bytes, and thus CRC, are not known yet.
  void add_storage(const std::string& name, uint64_t bytes) {
    begin(name, bytes, 0);
    storages_.push_back(entries_.size() - 1);
    layout_.storages.push_back({.offset = end_, .bytes = bytes});
    layout_.storages.back().crc_places[0] = entries_.back().header + kCrcInLocal;
    end_ += bytes;
  }

  TorchLayout finish() {
    LittleEndianBytes directory;
    std::vector<uint64_t> places;  // positions of the CRC of each entry
    for (const Entry& entry : entries_) {
      places.push_back(end_ + directory.size() + kCrcInCentral);
      add_central(entry, directory);
    }
    for (size_t i = 0; i < storages_.size(); ++i) {
      layout_.storages[i].crc_places[1] = places[storages_[i]];
    }
    add_end(directory);
    const uint64_t begin = end_;
    end_ += directory.size();
    layout_.known.emplace_back(begin, directory.take());
    layout_.file_bytes = end_;
    return std::move(layout_);
  }

 private:
  static constexpr uint64_t kCrcInLocal = 14, kCrcInCentral = 16;
  static constexpr uint64_t kLocalBytes = 30, kZip64LocalExtra = 20;

  static uint32_t short_size(uint64_t value) {
    return static_cast<uint32_t>(std::min(value, kZip64Limit));
  }

  // Writes the local header. Its extra field ends where the contents are aligned.
  void begin(const std::string& name, uint64_t bytes, uint32_t crc) {
    Entry entry{.name = std::string(kFolder) + name, .header = end_, .bytes = bytes, .crc = crc};
    const bool zip64 = bytes >= kZip64Limit;
    const uint64_t fixed = end_ + kLocalBytes + entry.name.size() + (zip64 ? kZip64LocalExtra : 0);
    entry.offset = align_up(fixed + 4, kContentsAlignment);
    const auto padding = static_cast<uint16_t>(entry.offset - fixed - 4);
    LittleEndianBytes out;
    out.integer(uint32_t{0x04034b50});
    add_common(entry, zip64, out);
    out.integer(static_cast<uint16_t>((zip64 ? kZip64LocalExtra : 0) + 4 + padding));
    out.text(entry.name);
    if (zip64) out.integer(uint16_t{1}).integer(uint16_t{16}).integer(bytes).integer(bytes);
    out.text("FB").integer(padding).text(std::string(padding, 'Z'));
    end_ += out.size();
    layout_.known.emplace_back(entry.header, out.take());
    entries_.push_back(std::move(entry));
  }

  // Writes the fields from the version to the length of the name.
  static void add_common(const Entry& entry, bool zip64, LittleEndianBytes& out) {
    out.integer(static_cast<uint16_t>(zip64 ? 45 : 20)).integer(uint16_t{0});  // version, flags
    out.integer(uint16_t{0}).integer(uint16_t{0}).integer(kDosDate);           // stored
    out.integer(entry.crc).integer(short_size(entry.bytes)).integer(short_size(entry.bytes));
    out.integer(static_cast<uint16_t>(entry.name.size()));
  }

  static void add_central(const Entry& entry, LittleEndianBytes& out) {
    LittleEndianBytes extra;
    if (entry.bytes >= kZip64Limit) extra.integer(entry.bytes).integer(entry.bytes);
    if (entry.header >= kZip64Limit) extra.integer(entry.header);
    const bool zip64 = extra.size() > 0;
    out.integer(uint32_t{0x02014b50}).integer(static_cast<uint16_t>(zip64 ? 45 : 20));
    // A local header states version 4.5 only for long contents. Both headers agree in the other
    // fields.
    add_common(entry, zip64, out);
    out.integer(static_cast<uint16_t>(zip64 ? extra.size() + 4 : 0));
    out.integer(uint16_t{0}).integer(uint16_t{0}).integer(uint16_t{0}).integer(uint32_t{0});
    out.integer(short_size(entry.header)).text(entry.name);
    if (!zip64) return;
    out.integer(uint16_t{1}).integer(static_cast<uint16_t>(extra.size()));
    for (const std::byte b : extra.get()) out.integer(static_cast<uint8_t>(b));
  }

  // Writes the end records that follow a directory which begins at end_.
  void add_end(LittleEndianBytes& out) const {
    const uint64_t bytes = out.size(), count = entries_.size();
    if (count >= kZip64EntriesLimit || bytes >= kZip64Limit || end_ >= kZip64Limit) {
      out.integer(uint32_t{0x06064b50}).integer(uint64_t{44});
      out.integer(uint16_t{45}).integer(uint16_t{45}).integer(uint32_t{0}).integer(uint32_t{0});
      out.integer(count).integer(count).integer(bytes).integer(end_);
      out.integer(uint32_t{0x07064b50}).integer(uint32_t{0}).integer(end_ + bytes);
      out.integer(uint32_t{1});
    }
    const auto shown = static_cast<uint16_t>(std::min<uint64_t>(count, kZip64EntriesLimit));
    out.integer(uint32_t{0x06054b50}).integer(uint16_t{0}).integer(uint16_t{0});
    out.integer(shown).integer(shown).integer(short_size(bytes)).integer(short_size(end_));
    out.integer(uint16_t{0});
  }

  TorchLayout layout_;
  std::vector<Entry> entries_;
  std::vector<size_t> storages_;  // indices in entries_
  uint64_t end_ = 0;
};

std::vector<std::byte> bytes_of(std::string_view text) {
  return LittleEndianBytes().text(text).take();
}

Failure refuse(ErrorCode code, const TorchTensorSpec& tensor, std::string_view what) {
  return fail(
      code, fmt::format("cannot write a PyTorch file: {} (tensor {})", what, quoted(tensor.name)));
}

// Returns the bytes of each storage.
Result<std::vector<uint64_t>> storage_sizes(std::span<const TorchTensorSpec> tensors,
                                            size_t storages) {
  std::vector<std::optional<uint64_t>> sizes(storages);
  for (const TorchTensorSpec& tensor : tensors) {
    if (storage_class(tensor.dtype).empty()) {
      return refuse(ErrorCode::kUnsupported, tensor,
                    fmt::format("there is no storage of {}", dtype_name(tensor.dtype)));
    }
    const auto count = checked_numel(tensor.shape);
    const auto bytes =
        count ? checked_mul<int64_t>(*count, dtype_bytes(tensor.dtype)) : std::nullopt;
    if (!bytes || tensor.storage >= storages) {
      return refuse(ErrorCode::kInternal, tensor, "bad shape or storage");
    }
    std::optional<uint64_t>& size = sizes[tensor.storage];
    if (size && *size != static_cast<uint64_t>(*bytes)) {
      return refuse(ErrorCode::kInternal, tensor, "the storage has another size");
    }
    size = static_cast<uint64_t>(*bytes);
  }
  std::vector<uint64_t> out;
  for (const auto& size : sizes) {
    if (!size) return fail(ErrorCode::kInternal, "a storage without a tensor");
    out.push_back(*size);
  }
  return out;
}

}  // namespace

Result<TorchLayout> plan_torch(std::span<const TorchTensorSpec> tensors, size_t storages) {
  const std::vector<uint64_t> sizes = FERRY_TRY(storage_sizes(tensors, storages));
  Archive archive;
  archive.add("data.pkl", Pickler().take(tensors).take());
  archive.add(".format_version", bytes_of("1"));
  archive.add(".storage_alignment", bytes_of("64"));
  archive.add("byteorder", bytes_of("little"));
  for (size_t i = 0; i < sizes.size(); ++i) {
    archive.add_storage(fmt::format("data/{}", i), sizes[i]);
  }
  archive.add("version", bytes_of("3\n"));
  return archive.finish();
}

}  // namespace ferry::formats
