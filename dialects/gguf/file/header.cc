#include "dialects/gguf/file/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <unordered_set>

#include "core/checked.h"
#include "core/text.h"

namespace ferry::formats {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMinVersion = 2, kMaxVersion = 3;
constexpr uint64_t kMaxItems = 65'536, kMaxGgufTensors = 65'536;
constexpr uint64_t kMaxKeyBytes = 65'535, kMaxNameBytes = 63;
constexpr uint32_t kMaxGgufRank = 4;
constexpr uint64_t kGgufLengthBytes = sizeof(uint64_t);
// An item has a key, a type and a value of a byte or more; a tensor has a name, a rank, a type and
// an offset. Counts are checked against these sizes.
constexpr uint64_t kMinItemBytes = kGgufLengthBytes + 4 + 1;
constexpr uint64_t kMinTensorBytes = kGgufLengthBytes + 4 + 4 + 8;
constexpr uint64_t kFirstFetch = uint64_t{64} << 10;
constexpr uint32_t kDefaultAlignment = 32;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr size_t kMaxShownKey = 80;

class HeaderReader {
 public:
  HeaderReader(const GgufRead& read, uint64_t file_bytes, const std::string& name)
      : read_(read), file_bytes_(file_bytes), name_(name) {}

  Result<GgufHeader> run();

 private:
  Status check_start();
  Result<uint64_t> take_count(std::string_view what, uint64_t min_bytes, uint64_t limit);
  Result<std::string> take_name(std::string_view what, uint64_t limit);
  Status take_item();
  Result<GgufValueType> take_value_type();
  Status skip_elements(const GgufItem& item);
  Status take_tensor();
  Status take_shape(GgufTensor& tensor);
  Status set_sizes(GgufTensor& tensor);
  Status apply_items(const GgufMetadata& metadata);
  Status finish_header();
  Status place_tensors();

  // Makes the next `bytes` bytes available.
  Status fetch(uint64_t bytes);
  template <class T>
  Result<T> take();
  Status skip(uint64_t bytes);

  Failure bad(std::string_view what) const { return bad_at(what, at_); }
  Failure bad_at(std::string_view what, uint64_t offset) const {
    return bad_input(fmt::format("{}: {} ({}offset {})", name_, what, subject_, offset));
  }
  Failure unsupported(std::string_view what) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} ({}offset {})", name_, what, subject_, at_));
  }

  const GgufRead& read_;
  uint64_t file_bytes_;
  const std::string& name_;
  uint64_t at_ = 0;
  uint64_t data_start_ = 0;
  uint32_t alignment_ = kDefaultAlignment;
  std::string subject_;  // tensor or key that is being read, for messages: "tensor 'x', "
  std::unordered_set<std::string> known_;
  GgufHeader header_;
};

Status HeaderReader::fetch(uint64_t bytes) {
  if (!range_inside(at_, bytes, file_bytes_)) {
    return bad(
        fmt::format("{} bytes are needed, and the file has {} left", bytes, file_bytes_ - at_));
  }
  if (!range_inside(at_, bytes, kMaxGgufHeaderBytes)) {
    return bad(fmt::format("the header is longer than {} bytes", kMaxGgufHeaderBytes));
  }
  const uint64_t known = header_.bytes.size();
  const uint64_t end = at_ + bytes;
  if (end <= known) return {};
  const uint64_t more = std::max({end, 2 * known, kFirstFetch});
  header_.bytes.resize(std::min({more, file_bytes_, kMaxGgufHeaderBytes}));
  return read_(known, std::span(header_.bytes).subspan(known));
}

template <class T>
Result<T> HeaderReader::take() {
  FERRY_RETURN_IF_ERROR(fetch(sizeof(T)));
  T value;
  std::memcpy(&value, header_.bytes.data() + at_, sizeof value);
  at_ += sizeof value;
  return value;
}

Status HeaderReader::skip(uint64_t bytes) {
  FERRY_RETURN_IF_ERROR(fetch(bytes));
  at_ += bytes;
  return {};
}

Status HeaderReader::check_start() {
  FERRY_RETURN_IF_ERROR(fetch(kMagic.size()));
  if (std::memcmp(header_.bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return bad("not a GGUF file: it does not begin with 'GGUF'");
  }
  at_ += kMagic.size();
  const auto version = FERRY_TRY(take<uint32_t>());
  if (version >= kMinVersion && version <= kMaxVersion) return {};
  at_ -= sizeof version;
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= kMaxVersion) {
    return unsupported("big-endian GGUF files are not supported");
  }
  return unsupported(fmt::format("GGUF version {} is not supported", version));
}

Result<uint64_t> HeaderReader::take_count(std::string_view what, uint64_t min_bytes,
                                          uint64_t limit) {
  const auto count = FERRY_TRY(take<uint64_t>());
  if (count > (file_bytes_ - at_) / min_bytes) {
    return bad_at(
        fmt::format("{} {}, more than a file of {} bytes can hold", count, what, file_bytes_),
        at_ - kGgufLengthBytes);
  }
  if (count > limit)
    return bad_at(fmt::format("more than {} {}", limit, what), at_ - kGgufLengthBytes);
  return count;
}

Result<std::string> HeaderReader::take_name(std::string_view what, uint64_t limit) {
  const uint64_t start = at_;
  const auto size = FERRY_TRY(take<uint64_t>());
  if (size == 0 || size > limit) {
    return bad_at(fmt::format("{} of {} bytes, not 1 to {}", what, size, limit), start);
  }
  FERRY_RETURN_IF_ERROR(fetch(size));
  std::string name(reinterpret_cast<const char*>(header_.bytes.data()) + at_, size);
  if (printable(name) != name) {
    return bad_at(
        fmt::format("{} {} with characters that do not print", what, quoted(name, kMaxShownKey)),
        start);
  }
  if (!known_.insert(name).second) {
    return bad_at(fmt::format("{} {} is there twice", what, quoted(name, kMaxShownKey)), start);
  }
  at_ += size;
  return name;
}

Result<GgufValueType> HeaderReader::take_value_type() {
  const auto id = FERRY_TRY(take<uint32_t>());
  if (find_gguf_value_type(id) == nullptr) {
    return bad_at(fmt::format("there is no value type {}", id), at_ - sizeof id);
  }
  return static_cast<GgufValueType>(id);
}

Status HeaderReader::take_item() {
  GgufItem item;
  item.key = FERRY_TRY(take_name("a key", kMaxKeyBytes));
  subject_ = fmt::format("key {}, ", quoted(item.key, kMaxShownKey));
  item.type = FERRY_TRY(take_value_type());
  if (item.type == GgufValueType::kArray) {
    item.is_array = true;
    item.type = FERRY_TRY(take_value_type());
    if (item.type == GgufValueType::kArray) return bad("an array of arrays");
    const uint64_t element = find_gguf_value_type(static_cast<uint32_t>(item.type))->bytes;
    item.count = FERRY_TRY(
        take_count("elements", element == 0 ? kGgufLengthBytes : element, kMaxGgufHeaderBytes));
  }
  item.offset = at_;
  FERRY_RETURN_IF_ERROR(skip_elements(item));
  header_.items.push_back(std::move(item));
  subject_.clear();
  return {};
}

Status HeaderReader::skip_elements(const GgufItem& item) {
  if (item.type != GgufValueType::kString) {
    // The count is at most the size of the file, so the product fits.
    return skip(item.count * find_gguf_value_type(static_cast<uint32_t>(item.type))->bytes);
  }
  for (uint64_t i = 0; i < item.count; ++i)
    FERRY_RETURN_IF_ERROR(skip(FERRY_TRY(take<uint64_t>())));
  return {};
}

Status HeaderReader::take_shape(GgufTensor& tensor) {
  const auto rank = FERRY_TRY(take<uint32_t>());
  if (rank > kMaxGgufRank) {
    return bad_at(fmt::format("{} dimensions, more than {}", rank, kMaxGgufRank),
                  at_ - sizeof rank);
  }
  Shape& shape = tensor.entry.shape;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = FERRY_TRY(take<uint64_t>());
    if (size > static_cast<uint64_t>(INT64_MAX)) {
      return bad_at(fmt::format("a dimension of {}", size), at_ - sizeof size);
    }
    shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(shape.begin(), shape.end());
  return {};
}

// Sets the bytes of the tensor in the file. The bytes of its values must be countable too.
Status HeaderReader::set_sizes(GgufTensor& tensor) {
  const BlockEncoding& block = tensor.type->block;
  const Shape& shape = tensor.entry.shape;
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % block.elements != 0) {
    return bad(fmt::format("rows of {} elements are not whole {} blocks of {}", row,
                           tensor.type->name, block.elements));
  }
  const auto count = checked_numel(shape);
  const auto values = count ? checked_mul(*count, dtype_bytes(tensor.entry.dtype)) : std::nullopt;
  const auto stored =
      count ? checked_mul<int64_t>(*count / block.elements, block.bytes) : std::nullopt;
  if (!values || !stored) {
    return bad(fmt::format("the shape {} has too many elements", to_string(shape)));
  }
  tensor.entry.bytes = static_cast<uint64_t>(*stored);
  tensor.entry.encoding = tensor.type->encoding();
  return {};
}

Status HeaderReader::take_tensor() {
  GgufTensor tensor;
  tensor.entry.name = FERRY_TRY(take_name("a tensor name", kMaxNameBytes));
  subject_ = fmt::format("tensor {}, ", quoted(tensor.entry.name));
  FERRY_RETURN_IF_ERROR(take_shape(tensor));
  const auto type = FERRY_TRY(take<uint32_t>());
  tensor.type = find_gguf_type(type);
  if (tensor.type == nullptr) {
    at_ -= sizeof type;
    return unsupported(fmt::format("tensors of type {} are not supported", gguf_type_name(type)));
  }
  tensor.entry.dtype = tensor.type->dtype;
  FERRY_RETURN_IF_ERROR(set_sizes(tensor));
  tensor.entry.offset = FERRY_TRY(take<uint64_t>());
  header_.tensors.push_back(std::move(tensor));
  subject_.clear();
  return {};
}

// Applies the keys that say how the rest of the file is to be read.
Status HeaderReader::apply_items(const GgufMetadata& metadata) {
  if (const GgufItem* item = metadata.find(kAlignmentKey)) {
    const auto value = FERRY_TRY(metadata.integer(kAlignmentKey));
    if (item->type != GgufValueType::kU32 || !std::has_single_bit(static_cast<uint64_t>(value))) {
      return bad_at(fmt::format("general.alignment {} is not a u32 power of two", value),
                    item->offset);
    }
    alignment_ = static_cast<uint32_t>(value);
  }
  return {};
}

// Finds the start of the data. The header is cut or filled up to there.
Status HeaderReader::finish_header() {
  data_start_ = align_up(at_, alignment_);
  if (header_.tensors.empty()) data_start_ = std::min(data_start_, file_bytes_);
  FERRY_RETURN_IF_ERROR(fetch(data_start_ - at_));
  header_.bytes.resize(data_start_);
  return {};
}

Status HeaderReader::place_tensors() {
  uint64_t end = 0, next = 0;  // end of the tensor before; place of the next one
  const uint64_t data_bytes = file_bytes_ - data_start_;
  for (GgufTensor& tensor : header_.tensors) {
    subject_ = fmt::format("tensor {}, ", quoted(tensor.entry.name));
    const uint64_t offset = tensor.entry.offset;
    if (offset != next) {
      const char* what = offset % alignment_ != 0 ? "not aligned"
                         : offset < next          ? "an overlap"
                                                  : "a hole before it";
      return bad_at(fmt::format("{}: the data are at {}, but belong at {}", what, offset, next),
                    data_start_);
    }
    if (!range_inside(offset, tensor.entry.bytes, data_bytes)) {
      return bad_at(fmt::format("{} bytes at data offset {}, but the file has {} bytes of data",
                                tensor.entry.bytes, offset, data_bytes),
                    data_start_);
    }
    end = offset + tensor.entry.bytes;
    next = align_up(end, alignment_);
    tensor.entry.offset += data_start_;
  }
  subject_.clear();
  if (data_bytes > next) {
    return bad_at(fmt::format("{} bytes after the last tensor", data_bytes - end),
                  data_start_ + end);
  }
  std::sort(header_.tensors.begin(), header_.tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) {
              const uint64_t left = a.entry.bytes, right = b.entry.bytes;
              return std::tie(a.entry.offset, left, a.entry.name) <
                     std::tie(b.entry.offset, right, b.entry.name);
            });
  return {};
}

Result<GgufHeader> HeaderReader::run() {
  FERRY_RETURN_IF_ERROR(check_start());
  const uint64_t tensors = FERRY_TRY(take_count("tensors", kMinTensorBytes, kMaxGgufTensors));
  const uint64_t items = FERRY_TRY(take_count("keys", kMinItemBytes, kMaxItems));
  for (uint64_t i = 0; i < items; ++i) FERRY_RETURN_IF_ERROR(take_item());
  FERRY_RETURN_IF_ERROR(apply_items(GgufMetadata(header_.items, header_.bytes, name_)));
  known_.clear();
  for (uint64_t i = 0; i < tensors; ++i) FERRY_RETURN_IF_ERROR(take_tensor());
  FERRY_RETURN_IF_ERROR(finish_header());
  FERRY_RETURN_IF_ERROR(place_tensors());
  return std::move(header_);
}

}  // namespace

Result<GgufHeader> read_gguf_header(const GgufRead& read, uint64_t file_bytes,
                                    const std::string& name) {
  return HeaderReader(read, file_bytes, name).run();
}

}  // namespace ferry::formats
