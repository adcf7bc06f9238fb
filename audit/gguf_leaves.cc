#include "audit/gguf_leaves.h"

#include <algorithm>
#include <string_view>

namespace ferry::audit {
namespace {

using formats::GgufItem;
using formats::GgufMetadata;
using formats::GgufValueType;

constexpr uint64_t kPrefixBytes = 24;  // magic, version, two counts
// Of a key/value pair: u64 length of the key, the key, u32 type, the value; an array has u32 type
// of its elements and u64 count before them.
constexpr uint64_t kLengthBytes = 8, kTypeBytes = 4, kArrayBytes = 12;

uint64_t begin_of(const GgufItem& item) {
  return item.offset - (item.is_array ? kArrayBytes : 0) - kTypeBytes - item.key.size() -
         kLengthBytes;
}

// Of texts the end is that of the last one.
uint64_t end_of(const GgufItem& item, const GgufMetadata& metadata,
                std::span<const std::byte> header) {
  if (item.type != GgufValueType::kString) {
    const auto* info = formats::find_gguf_value_type(static_cast<uint32_t>(item.type));
    return item.offset + item.count * (info == nullptr ? 0 : info->bytes);
  }
  std::string_view last;
  if (!item.is_array) {
    last = metadata.text(item.key).value_or(std::string_view());
  } else if (const auto texts = metadata.texts(item.key); texts && !texts->empty()) {
    last = texts->back();
  } else {
    return item.offset;
  }
  return static_cast<uint64_t>(last.data() + last.size() -
                               reinterpret_cast<const char*>(header.data()));
}

// Name, number of dimensions, dimensions, type, offset.
uint64_t bytes_of_infos(const std::vector<TensorEntry>& tensors) {
  uint64_t bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    bytes += kLengthBytes + tensor.name.size() + 4 + 8 * tensor.shape.size() + 4 + 8;
  }
  return bytes;
}

Claim claim(uint64_t begin, uint64_t end, LeafKind kind, std::string_view name) {
  return {Leaf{.offset = begin,
               .bytes = end - begin,
               .kind = kind,
               .name = std::string(name),
               .component = kind == LeafKind::kHeader ? "program" : "files"},
          1};
}

bool is_tokenizer(const GgufItem& item) { return item.key.starts_with("tokenizer."); }

}  // namespace

std::vector<Claim> claim_gguf_header(const GgufMetadata& metadata,
                                     std::span<const std::byte> header,
                                     const std::vector<TensorEntry>& tensors) {
  std::vector<Claim> claims = {claim(0, kPrefixBytes, LeafKind::kHeader, "counts")};
  const std::vector<GgufItem>& items = metadata.items();
  uint64_t end = kPrefixBytes;
  for (size_t i = 0; i < items.size();) {
    size_t next = i;
    while (next < items.size() && is_tokenizer(items[next]) == is_tokenizer(items[i])) ++next;
    end = next < items.size() ? begin_of(items[next]) : end_of(items[next - 1], metadata, header);
    const bool tokenizer = is_tokenizer(items[i]);
    claims.push_back(claim(begin_of(items[i]), end,
                           tokenizer ? LeafKind::kTokenizer : LeafKind::kMetadata,
                           tokenizer ? "tokenizer.*" : "key/value pairs"));
    i = next;
  }
  const uint64_t infos_end = std::min<uint64_t>(end + bytes_of_infos(tensors), header.size());
  claims.push_back(claim(end, infos_end, LeafKind::kHeader, "names and places of tensors"));
  return claims;
}

}  // namespace ferry::audit
