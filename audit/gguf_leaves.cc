#include "audit/gguf_leaves.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "dialects/gguf/file/header.h"
#include "dialects/gguf/file/metadata.h"

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
uint64_t bytes_of_infos(const std::vector<formats::GgufTensor>& tensors) {
  uint64_t bytes = 0;
  for (const auto& [entry, type] : tensors) {
    bytes += kLengthBytes + entry.name.size() + 4 + 8 * entry.shape.size() + 4 + 8;
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

Result<std::vector<Claim>> claim_gguf_header(const SourceFile& file) {
  const std::span<const std::byte> header = file.header;
  // The reader may ask for more than it needs.
  const auto read = [header](uint64_t offset, std::span<std::byte> out) -> Status {
    std::ranges::fill(out, std::byte{0});
    const auto rest = header.subspan(std::min<uint64_t>(offset, header.size()));
    std::ranges::copy(rest.first(std::min(rest.size(), out.size())), out.begin());
    return {};
  };
  const formats::GgufHeader parsed =
      FERRY_TRY(formats::read_gguf_header(read, file.bytes, file.name));
  const std::vector<GgufItem>& items = parsed.items;
  const GgufMetadata metadata(items, header, file.name);
  std::vector<Claim> claims = {claim(0, kPrefixBytes, LeafKind::kHeader, "counts")};
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
  const uint64_t infos_end =
      std::min<uint64_t>(end + bytes_of_infos(parsed.tensors), header.size());
  claims.push_back(claim(end, infos_end, LeafKind::kHeader, "names and places of tensors"));
  return claims;
}

}  // namespace ferry::audit
