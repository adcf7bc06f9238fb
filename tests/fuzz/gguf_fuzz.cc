// Input: a whole GGUF file.

#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "core/checked.h"
#include "dialects/gguf/file/header.h"
#include "tests/fuzz/require.h"

namespace ferry::gguf_fuzz {
namespace {

// Checks that accepted tensors do not overlap, and have the sizes that their type and shape give.
void check_tensors(const formats::GgufHeader& header, uint64_t file_bytes) {
  uint64_t end = header.bytes.size();
  std::set<std::string_view> names;
  for (const formats::GgufTensor& tensor : header.tensors) {
    const TensorEntry& entry = tensor.entry;
    require(entry.offset >= end && range_inside(entry.offset, entry.bytes, file_bytes));
    const auto count = checked_numel(entry.shape);
    require(count && entry.bytes * tensor.type->block.elements ==
                         static_cast<uint64_t>(*count) * tensor.type->block.bytes);
    require(names.insert(entry.name).second);
    end = entry.offset + entry.bytes;
  }
}

// Reads every value as every kind.
void read_values(const formats::GgufMetadata& metadata) {
  uint64_t seen = 0;
  for (const formats::GgufItem& item : metadata.items()) {
    seen += metadata.integer(item.key).has_value();
    seen += metadata.real(item.key).has_value();
    seen += metadata.boolean(item.key).has_value();
    seen += metadata.text(item.key).has_value();
    seen += metadata.integers(item.key).has_value();
    seen += metadata.reals(item.key).has_value();
    if (const auto texts = metadata.texts(item.key)) {
      for (const std::string_view text : *texts) seen += std::hash<std::string_view>()(text) & 1;
    }
  }
  seen += metadata.to_json().has_value();
  require(seen < UINT64_MAX);
}

void dequantize_first_blocks(const formats::GgufHeader& header, std::span<const std::byte> file) {
  float values[kMaxBlockElements];
  for (const formats::GgufTensor& tensor : header.tensors) {
    const BlockEncoding* encoding = tensor.entry.encoding;
    if (encoding != nullptr && tensor.entry.bytes > 0) {
      encoding->decode(file.data() + tensor.entry.offset, values);
    }
  }
}

void run(std::span<const std::byte> file) {
  const formats::GgufRead read = [file](uint64_t offset, std::span<std::byte> out) -> Status {
    require(range_inside(offset, out.size(), file.size()));
    if (!out.empty()) std::memcpy(out.data(), file.data() + offset, out.size());
    return {};
  };
  const auto header = formats::read_gguf_header(read, file.size(), "f");
  if (!header) return require_good_message(header.error());
  require(header->bytes.size() <= file.size());
  check_tensors(*header, file.size());
  read_values(formats::GgufMetadata(header->items, header->bytes, "f"));
  dequantize_first_blocks(*header, file);
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::gguf_fuzz
