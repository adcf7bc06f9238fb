// Input: a byte that chooses filters and their order, a byte that skips some of them, two bytes for
// the size of the chunk, and the stored bytes of the chunk.

#include "formats/hdf5/chunks.h"
#include "tests/fuzz/require.h"

namespace ferry::hdf5::hdf5_chunk_fuzz {
namespace {

// Returns the chosen filters in the chosen order.
std::vector<Filter> filters_of(uint8_t choice) {
  std::vector<Filter> filters = {{kShuffle, {4}}, {kDeflate, {}}, {kFletcher32, {}}};
  for (int i = 0; i < (choice >> 3 & 7) % 6; ++i) {
    std::ranges::next_permutation(filters, {}, &Filter::id);
  }
  for (int i = 2; i >= 0; --i) {
    if ((choice >> i & 1) == 0) filters.erase(filters.begin() + i);
  }
  return filters;
}

void run(std::span<const std::byte> input) {
  if (input.size() < 4) return;
  const auto byte = [&](size_t i) { return std::to_integer<uint8_t>(input[i]); };
  const std::vector<Filter> filters = filters_of(byte(0));
  const uint32_t skipped = byte(1) & ((1u << filters.size()) - 1);
  const ChunkShape shape{uint64_t{4} * (byte(2) | byte(3) << 8), 4};
  const auto stored = input.subspan(4);
  const auto plain = unfilter_chunk({stored.begin(), stored.end()}, filters, skipped, shape);
  if (!plain) return require_good_message(plain.error());
  require(plain->size() == shape.bytes);
}

}  // namespace
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::hdf5::hdf5_chunk_fuzz
