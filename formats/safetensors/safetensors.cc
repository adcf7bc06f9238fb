#include "formats/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/file.h"
#include "core/text.h"
#include "formats/file_tensor_source.h"

namespace ferry::formats {
namespace {

constexpr size_t kMaxSafetensorsRank = 64;
constexpr size_t kMaxSafetensors = 1'000'000;
constexpr size_t kMaxMetadataKeys = 65'536;
// Strings other than the tensor's name are cut to this length in messages, so that the line stays
// short.
constexpr size_t kMaxShown = 40;
constexpr std::string_view kMetadataKey = "__metadata__";

enum Field : unsigned { kDType, kShape, kOffsets, kFields };
struct FieldInfo {
  std::string_view name, kind;
};
constexpr std::array<FieldInfo, kFields> kFieldInfo = {{
    {"dtype", "a string"},
    {"shape", "an array of unsigned integers"},
    {"data_offsets", "an array of two unsigned integers"},
}};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Collects the tensors; offsets are still relative to the data.
class HeaderHandler final : public JsonHandler {
 public:
  bool null() override {
    if (where_ == Where::kTop && in_metadata_) return true;
    return unexpected();
  }
  bool boolean(bool) override { return unexpected(); }
  bool number_integer(int64_t) override { return unexpected(); }  // negative, or -0
  bool number_float(double, const std::string&) override { return unexpected(); }

  bool number_unsigned(uint64_t value) override {
    if (where_ != Where::kList) return unexpected();
    if (field_ == kOffsets) {
      if (offset_count_ == offsets_.size()) return unexpected();
      offsets_[offset_count_++] = value;
      return true;
    }
    if (value > uint64_t{INT64_MAX}) return refuse_tensor("a dimension is over 2^63 - 1");
    if (tensor_.shape.size() == kMaxSafetensorsRank) {
      return refuse_tensor(fmt::format("more than {} dimensions", kMaxSafetensorsRank));
    }
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (where_ == Where::kMetadata) return true;
    if (where_ != Where::kTensor || field_ != kDType) return unexpected();
    const std::optional<DType> dtype = dtype_from_safetensors(value);
    if (!dtype) return refuse_tensor(fmt::format("unknown dtype {}", quoted(value, kMaxShown)));
    tensor_.dtype = *dtype;
    return true;
  }

  bool key(std::string& value) override {
    if (where_ == Where::kTop) return top_key(value);
    return where_ == Where::kMetadata ? metadata_key(value) : field_key(value);
  }

  std::vector<TensorEntry> take() { return std::move(tensors_); }

 protected:
  bool begin_object() override {
    if (where_ == Where::kOutside) {
      where_ = Where::kTop;
      return true;
    }
    if (where_ != Where::kTop) return unexpected();
    where_ = in_metadata_ ? Where::kMetadata : Where::kTensor;
    seen_ = 0;
    offset_count_ = 0;
    return true;
  }

  bool begin_array() override {
    if (where_ != Where::kTensor || field_ == kDType) return unexpected();
    where_ = Where::kList;
    return true;
  }

  bool close_object() override {
    const Where closed = where_;
    where_ = Where::kTop;
    return closed != Where::kTensor || finish_tensor();
  }

  bool close_array() override {
    if (field_ == kOffsets && offset_count_ != offsets_.size()) return unexpected();
    where_ = Where::kTensor;
    return true;
  }

 private:
  // The innermost open container.
  enum class Where { kOutside, kTop, kMetadata, kTensor, kList };

  bool top_key(std::string& value) {
    in_metadata_ = value == kMetadataKey;
    tensor_ = {};
    tensor_.name = std::move(value);
    if (!in_metadata_) return true;
    if (has_metadata_) return refuse("the key '__metadata__' is there twice");
    has_metadata_ = true;
    return true;
  }

  bool metadata_key(const std::string& value) {
    metadata_key_ = value;
    if (metadata_keys_.size() == kMaxMetadataKeys) {
      return refuse(fmt::format("more than {} keys in __metadata__", kMaxMetadataKeys));
    }
    if (metadata_keys_.insert(value).second) return true;
    return refuse(fmt::format("the key {} is there twice in __metadata__", quoted(value)));
  }

  bool field_key(const std::string& value) {
    const auto* info = std::find_if(kFieldInfo.begin(), kFieldInfo.end(),
                                    [&](const FieldInfo& f) { return f.name == value; });
    if (info == kFieldInfo.end()) {
      return refuse_tensor(fmt::format("unknown field {}", quoted(value, kMaxShown)));
    }
    field_ = static_cast<Field>(info - kFieldInfo.begin());
    if (seen_ & (1u << field_)) {
      return refuse_tensor(fmt::format("the field '{}' is there twice", info->name));
    }
    seen_ |= 1u << field_;
    return true;
  }

  bool finish_tensor() {
    for (unsigned field = 0; field < kFields; ++field) {
      if (seen_ & (1u << field)) continue;
      return refuse_tensor(fmt::format("no field '{}'", kFieldInfo[field].name));
    }
    const auto [begin, end] = offsets_;
    if (end < begin) {
      return refuse_tensor(
          fmt::format("data_offsets end at {} before they begin at {}", end, begin));
    }
    const std::optional<int64_t> count = checked_numel(tensor_.shape);
    const auto bits = count ? checked_mul(static_cast<uint64_t>(*count),
                                          static_cast<uint64_t>(dtype_bits(tensor_.dtype)))
                            : std::nullopt;
    const std::string shape = to_string(tensor_.shape).substr(0, kMaxShown);
    if (!bits) return refuse_tensor(fmt::format("the shape {} is too large", shape));
    if (*bits % 8 != 0) {
      return refuse_tensor(fmt::format("{} bits are not a whole number of bytes", *bits));
    }
    if (*bits / 8 != end - begin) {
      return refuse_tensor(
          fmt::format("{} of shape {} needs {} bytes, data_offsets [{}, {}] are {}",
                      dtype_name(tensor_.dtype), shape, *bits / 8, begin, end, end - begin));
    }
    if (tensors_.size() == kMaxSafetensors) {
      return refuse(fmt::format("more than {} tensors", kMaxSafetensors));
    }
    tensor_.bytes = end - begin;
    tensor_.offset = begin;
    tensors_.push_back(std::move(tensor_));
    return true;
  }

  bool refuse_tensor(std::string_view what) {
    return refuse(fmt::format("{} (tensor {})", what, quoted(tensor_.name)));
  }

  // Reports a value of the wrong kind by the place where it is.
  bool unexpected() {
    switch (where_) {
      case Where::kOutside:
        return refuse("the header is not a JSON object");
      case Where::kTop:
        if (in_metadata_) return refuse("__metadata__ is not an object");
        return refuse_tensor("not an object");
      case Where::kMetadata:
        return refuse(fmt::format("__metadata__ has no string under {}", quoted(metadata_key_)));
      case Where::kTensor:
      case Where::kList:
        break;
    }
    const FieldInfo& info = kFieldInfo[field_];
    return refuse_tensor(fmt::format("the field '{}' is not {}", info.name, info.kind));
  }

  std::vector<TensorEntry> tensors_;
  TensorEntry tensor_ = {};
  std::array<uint64_t, 2> offsets_ = {};
  size_t offset_count_ = 0;
  Where where_ = Where::kOutside;
  Field field_ = kDType;
  unsigned seen_ = 0;  // bit set of fields that have occurred
  bool in_metadata_ = false, has_metadata_ = false;
  std::string metadata_key_;
  std::set<std::string> metadata_keys_;
};

Status check_unique_names(const std::vector<TensorEntry>& entries, const std::string& name) {
  std::vector<uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto name_of = [&](uint32_t i) -> const std::string& { return entries[i].name; };
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return name_of(a) < name_of(b); });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name_of(a) == name_of(b); });
  if (twice == order.end()) return {};
  return bad_input(fmt::format("{}: there twice (tensor {})", name, quoted(name_of(*twice))));
}

// Turns relative offsets into absolute ones. `entries` are in the order of offsets.
Status place_data(std::vector<TensorEntry>& entries, uint64_t data_start, uint64_t file_bytes,
                  const std::string& name) {
  const uint64_t data_bytes = file_bytes - data_start;
  uint64_t expected = 0;
  for (TensorEntry& entry : entries) {
    if (entry.offset != expected) {
      const char* what = entry.offset > expected ? "a hole before" : "an overlap at";
      return bad_input(
          fmt::format("{}: {} data offset {}, the data before it end at {} (tensor {})", name, what,
                      entry.offset, expected, quoted(entry.name)));
    }
    if (!range_inside(entry.offset, entry.bytes, data_bytes)) {
      return bad_input(fmt::format("{}: needs {} bytes, the file ends at {} (tensor {}, offset {})",
                                   name, entry.bytes, file_bytes, quoted(entry.name),
                                   data_start + entry.offset));
    }
    expected += entry.bytes;
    entry.offset += data_start;
  }
  if (expected == data_bytes) return {};
  return bad_input(fmt::format("{}: {} bytes after the last tensor (offset {})", name,
                               data_bytes - expected, data_start + expected));
}

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
  return text_of(bytes).substr(0, text.size()) == text;
}

}  // namespace

Result<uint64_t> safetensors_header_bytes(std::span<const std::byte> start, uint64_t file_bytes,
                                          const std::string& name) {
  if (starts_with(start, "version https://git-lfs")) {
    return bad_input(fmt::format("{}: a Git LFS pointer, not the file itself", name));
  }
  if (file_bytes < kSafetensorsPrefixBytes || start.size() < kSafetensorsPrefixBytes) {
    return bad_input(
        fmt::format("{}: {} bytes are too few for a safetensors file", name, file_bytes));
  }
  uint64_t length = 0;
  for (size_t i = kSafetensorsPrefixBytes; i-- > 0;) {
    length = (length << 8) | std::to_integer<uint64_t>(start[i]);
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    const bool markup = starts_with(start, "<");
    return bad_input(
        fmt::format("{}: not a safetensors file{}: header of {} bytes, at most {} are "
                    "allowed (offset 0)",
                    name, markup ? " but HTML or XML" : "", length, kMaxSafetensorsHeaderBytes));
  }
  if (length > file_bytes - kSafetensorsPrefixBytes) {
    return bad_input(
        fmt::format("{}: header of {} bytes in a file of {} (offset 0)", name, length, file_bytes));
  }
  return length;
}

Result<std::vector<TensorEntry>> parse_safetensors_header(const JsonPieces& json,
                                                          uint64_t json_bytes, uint64_t file_bytes,
                                                          const std::string& name, uint32_t file) {
  const auto data_start = checked_add<uint64_t>(json_bytes, kSafetensorsPrefixBytes);
  if (!data_start || *data_start > file_bytes) {
    return bad_input(
        fmt::format("{}: header of {} bytes in a file of {}", name, json_bytes, file_bytes));
  }
  HeaderHandler handler;
  FERRY_RETURN_IF_ERROR(parse_json_events(json, name, handler, kSafetensorsPrefixBytes));
  std::vector<TensorEntry> entries = handler.take();
  FERRY_RETURN_IF_ERROR(check_unique_names(entries, name));
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  FERRY_RETURN_IF_ERROR(place_data(entries, *data_start, file_bytes, name));
  for (TensorEntry& entry : entries) entry.file = file;
  return entries;
}

Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> json,
                                                          uint64_t file_bytes,
                                                          const std::string& name, uint32_t file) {
  std::string_view text = text_of(json);
  const JsonPieces whole = [&]() -> Result<std::string_view> {
    return std::exchange(text, std::string_view());
  };
  return parse_safetensors_header(whole, json.size(), file_bytes, name, file);
}

namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 10;
// Headers of real checkpoints have a hundredth of this size. The format allows 100 MB.
constexpr uint64_t kMaxKeptHeaderBytes = uint64_t{16} << 20;

class SafetensorsSource final : public FileTensorSource {
 public:
  explicit SafetensorsSource(std::string path) : FileTensorSource(std::move(path)) {}

  Status add(CheckpointFile file);
};

struct Header {
  std::vector<TensorEntry> entries;
  std::vector<std::byte>
      bytes;  // bytes from the start of the file; empty if there are too many to keep
};

// Reads the JSON in pieces, so that it is never in memory as a whole.
Result<Header> read_header(const InputFile& input, const std::string& name, uint32_t file) {
  std::array<std::byte, 64> buffer;
  const auto start = std::span(buffer).first(std::min<uint64_t>(buffer.size(), input.size()));
  FERRY_RETURN_IF_ERROR(input.read_at(0, start));
  const uint64_t json_bytes = FERRY_TRY(safetensors_header_bytes(start, input.size(), name));
  const bool keep = json_bytes <= kMaxKeptHeaderBytes;
  Header header;
  if (keep) header.bytes.assign(start.begin(), start.begin() + kSafetensorsPrefixBytes);
  std::vector<std::byte> piece(kPieceBytes);
  uint64_t done = 0;
  const JsonPieces next = [&]() -> Result<std::string_view> {
    piece.resize(std::min(kPieceBytes, json_bytes - done));
    FERRY_RETURN_IF_ERROR(input.read_at(kSafetensorsPrefixBytes + done, piece));
    done += piece.size();
    if (keep) header.bytes.insert(header.bytes.end(), piece.begin(), piece.end());
    return std::string_view(reinterpret_cast<const char*>(piece.data()), piece.size());
  };
  header.entries = FERRY_TRY(parse_safetensors_header(next, json_bytes, input.size(), name, file));
  return header;
}

Status SafetensorsSource::add(CheckpointFile file) {
  auto input = std::make_unique<InputFile>(std::move(file.file));
  const auto number = static_cast<uint32_t>(files().size());
  Header header = FERRY_TRY(read_header(*input, printable(input->path()), number));
  add_file(file.name, std::move(input), std::move(header.bytes));
  for (TensorEntry& entry : header.entries) add_entry(std::move(entry));
  return {};
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_safetensors(std::vector<CheckpointFile> files,
                                                       const std::string& display_path) {
  auto source = std::make_unique<SafetensorsSource>(display_path);
  for (CheckpointFile& file : files) FERRY_RETURN_IF_ERROR(source->add(std::move(file)));
  if (files.size() > 1) FERRY_RETURN_IF_ERROR(check_unique_names(*source));
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::formats
