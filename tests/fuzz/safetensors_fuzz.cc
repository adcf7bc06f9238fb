// Input: a whole safetensors file.

#include <set>

#include "core/checked.h"
#include "formats/safetensors/safetensors.h"
#include "tests/fuzz/require.h"

namespace ferry::safetensors_fuzz {
namespace {

// Checks that accepted entries cover the data exactly, and have the sizes that dtype and shape
// give.
void check_entries(const std::vector<TensorEntry>& entries, uint64_t data_start,
                   uint64_t file_bytes) {
  uint64_t end = data_start;
  std::set<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    require(entry.offset == end);
    const auto count = checked_numel(entry.shape);
    require(count &&
            static_cast<uint64_t>(*count) * static_cast<uint64_t>(dtype_bits(entry.dtype)) ==
                8 * entry.bytes);
    require(names.insert(entry.name).second);
    end += entry.bytes;
  }
  require(end == file_bytes);
}

void run(std::span<const std::byte> file) {
  const auto start = file.first(std::min<size_t>(file.size(), 64));
  const auto json_bytes = formats::safetensors_header_bytes(start, file.size(), "f");
  if (!json_bytes) return require_good_message(json_bytes.error());
  const auto json = file.subspan(formats::kSafetensorsPrefixBytes, *json_bytes);
  const auto entries = formats::parse_safetensors_header(json, file.size(), "f");
  if (!entries) return require_good_message(entries.error());
  check_entries(*entries, formats::kSafetensorsPrefixBytes + *json_bytes, file.size());
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::safetensors_fuzz
