// Input: any bytes as a blob of the XNNPACK backend. It is refused, or our writer writes the graph
// again.
#include "formats/xnnpack/reader.h"
#include "formats/xnnpack/validate.h"
#include "formats/xnnpack/writer.h"
#include "tests/fuzz/require.h"

namespace ferry::xnnpack::xnnpack_blob_fuzz {
namespace {

// Gives each constant named data of its size. Scales are then refused, because they are zeros.
void check_named_data(const Graph& graph, std::span<const std::byte> blob) {
  constexpr uint64_t kMost = 1 << 20;
  uint64_t longest = 0;
  for (const Constant& constant : graph.constants) longest = std::max(longest, constant.bytes);
  if (longest > kMost) return;
  const std::vector<std::byte> zeros(longest);
  const auto lookup = [&](std::string_view key) -> std::optional<std::span<const std::byte>> {
    for (const Constant& constant : graph.constants) {
      if (constant.key == key) return std::span(zeros).first(constant.bytes);
    }
    return std::nullopt;
  };
  const Status status = check_constants(graph, blob, lookup, "fuzz.pte");
  if (!status) require_good_message(status.error());
}

void check(std::span<const std::byte> blob) {
  const auto graph = read_blob(blob, "fuzz.pte: blob 0");
  if (!graph) return require_good_message(graph.error());
  check_named_data(*graph, blob);
  const auto ours = write_blob(*graph);
  // The constants are inside the blob.
  if (!ours) return require(ours.error().code == ErrorCode::kUnsupported);
  const auto again = read_blob(*ours, "ours");
  require(again.has_value());
  require(write_blob(*again).value() == *ours);  // bytes are compared, because graphs may hold NaN
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  check(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::xnnpack::xnnpack_blob_fuzz
