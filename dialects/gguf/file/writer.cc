#include "dialects/gguf/file/writer.h"

#include <fmt/format.h>

#include <cstring>
#include <set>
#include <string_view>
#include <type_traits>

#include "core/checked.h"
#include "core/text.h"
#include "dialects/gguf/file/dequant.h"
#include "dialects/gguf/file/metadata.h"

namespace ferry::formats {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kWrittenAlignment = 32;  // alignment of files without `general.alignment`
constexpr size_t kMaxWrittenKeyBytes = 65535, kMaxWrittenNameBytes = 63,
                 kMaxWrittenDimensions = 4;  // as in ggml

uint64_t padded(uint64_t bytes) {
  return (bytes + kWrittenAlignment - 1) / kWrittenAlignment * kWrittenAlignment;
}

class Head {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  }
  void put(bool value) { put(static_cast<uint8_t>(value)); }
  void put(GgufValueType type) { put(static_cast<uint32_t>(type)); }
  void put(const std::string& text) {
    put(uint64_t{text.size()});
    const std::span all = std::as_bytes(std::span(text));
    bytes.insert(bytes.end(), all.begin(), all.end());
  }
  void put(const GgufValue& value) {
    std::visit([this](const auto& held) { put_typed(held); }, value);
  }

  std::vector<std::byte> bytes;

 private:
  template <class T>
  static constexpr GgufValueType type_of() {
    if constexpr (std::is_same_v<T, uint16_t>) return GgufValueType::kU16;
    if constexpr (std::is_same_v<T, uint32_t>) return GgufValueType::kU32;
    if constexpr (std::is_same_v<T, int32_t>) return GgufValueType::kI32;
    if constexpr (std::is_same_v<T, float>) return GgufValueType::kF32;
    if constexpr (std::is_same_v<T, bool>) return GgufValueType::kBool;
    return GgufValueType::kString;
  }

  template <class T>
  void put_typed(const T& value) {
    put(type_of<T>());
    put(value);
  }
  template <class T>
  void put_typed(const std::vector<T>& values) {
    put(GgufValueType::kArray);
    put(type_of<T>());
    put(uint64_t{values.size()});
    for (const auto& value : values) put(static_cast<const T&>(value));
  }
  void put_typed(const GgufStoredValue& value) {
    bytes.insert(bytes.end(), value.bytes.begin(), value.bytes.end());
  }
};

Failure cannot(std::string_view what, const std::string& name, const std::string& why) {
  return fail(ErrorCode::kUnsupported, fmt::format("GGUF: {} {} {}", what, quoted(name), why));
}

Status check_names(std::span<const GgufKeyValue> keys, std::span<const GgufTensorInfo> tensors) {
  std::set<std::string_view> taken;
  for (const GgufKeyValue& item : keys) {
    if (item.key.empty() || item.key.size() > kMaxWrittenKeyBytes ||
        !taken.insert(item.key).second) {
      return cannot("key", item.key, "is empty, too long or there twice");
    }
  }
  taken.clear();
  for (const GgufTensorInfo& tensor : tensors) {
    if (tensor.name.empty() || !taken.insert(tensor.name).second) {
      return cannot("tensor", tensor.name, "is there twice");
    }
    if (tensor.name.size() > kMaxWrittenNameBytes) {
      return cannot("tensor", tensor.name,
                    fmt::format("has a name of more than {} bytes", kMaxWrittenNameBytes));
    }
    if (tensor.shape.empty() || tensor.shape.size() > kMaxWrittenDimensions ||
        tensor.bytes() == 0) {
      return cannot("tensor", tensor.name,
                    fmt::format("{} has no form in the format", to_string(tensor.shape)));
    }
  }
  return {};
}

}  // namespace

uint64_t GgufTensorInfo::bytes() const {
  const GgufType* known = find_gguf_type(type);
  const auto count = checked_numel(shape);
  if (known == nullptr || !count || shape.empty() || shape.back() % known->block.elements != 0) {
    return 0;
  }
  return static_cast<uint64_t>(*count) / known->block.elements * known->block.bytes;
}

Result<GgufLayout> lay_out_gguf(std::span<const GgufKeyValue> keys,
                                std::span<const GgufTensorInfo> tensors) {
  FERRY_RETURN_IF_ERROR(check_names(keys, tensors));
  Head head;
  for (const char letter : std::string_view("GGUF")) head.put(letter);
  head.put(kVersion);
  head.put(uint64_t{tensors.size()});
  head.put(uint64_t{keys.size()});
  for (const GgufKeyValue& item : keys) {
    head.put(item.key);
    head.put(item.value);
  }
  GgufLayout layout;
  uint64_t offset = 0;
  for (const GgufTensorInfo& tensor : tensors) {
    head.put(tensor.name);
    head.put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) {
      head.put(static_cast<uint64_t>(tensor.shape[i - 1]));
    }
    head.put(tensor.type);
    head.put(offset);
    layout.offsets.push_back(offset);
    offset += padded(tensor.bytes());
  }
  head.bytes.resize(padded(head.bytes.size()));
  for (uint64_t& at : layout.offsets) at += head.bytes.size();
  layout.file_bytes = head.bytes.size() + offset;
  layout.head = std::move(head.bytes);
  return layout;
}

std::vector<size_t> gguf_parts(std::span<const GgufTensorInfo> tensors, uint64_t max_bytes,
                               uint64_t max_tensors) {
  std::vector<size_t> parts = {0};
  uint64_t bytes = 0;
  for (const GgufTensorInfo& tensor : tensors) {
    const bool full = (max_bytes > 0 && bytes + tensor.bytes() > max_bytes) ||
                      (max_tensors > 0 && parts.back() >= max_tensors);
    if (full && parts.back() > 0) {
      parts.push_back(0);
      bytes = 0;
    }
    ++parts.back();
    bytes += tensor.bytes();
  }
  return parts;
}

std::vector<GgufKeyValue> gguf_split_keys(size_t part, size_t parts, size_t tensors) {
  return {{"split.no", static_cast<uint16_t>(part)},
          {"split.count", static_cast<uint16_t>(parts)},
          {"split.tensors.count", static_cast<int32_t>(tensors)}};
}

}  // namespace ferry::formats
