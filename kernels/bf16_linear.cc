#include "kernels/bf16_linear.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "kernels/compute_scratch.h"
#include "kernels/processor.h"

namespace ferry::kernels {
namespace {

// A task should be long enough to pay for its cold start, and short enough to share the work.
constexpr size_t kLeastTaskBytes = size_t{1} << 16;
constexpr size_t kMostTaskBytes = size_t{1} << 19;
constexpr size_t kTaskColumns = 2 * kTileSide;

size_t columns_of_task(const Bf16Product& p, size_t threads) {
  const size_t row_bytes = p.k * sizeof(uint16_t);
  const size_t share = row_bytes * p.n / (2 * threads);
  const size_t bytes = std::clamp(share, kLeastTaskBytes, kMostTaskBytes);
  const size_t columns = std::max<size_t>(1, bytes / row_bytes);
  return tiles_along(columns, kTaskColumns) * kTaskColumns;
}

}  // namespace

Bf16Instructions bf16_instructions() {
  if (processor().amx_bf16) return Bf16Instructions::kAmx;
  return processor().avx512_bf16 ? Bf16Instructions::kAvx512 : Bf16Instructions::kNone;
}

void pack_for_tiles(const Bf16Product& p, size_t block, uint16_t* packed) {
  const size_t tiles = tiles_along(p.k, kTileDepth);
  uint16_t* to = packed + block * tiles * kTileValues;
  const size_t row = block * kTileSide, rows = std::min(kTileSide, p.m - row);
  std::memset(to, 0, tiles * kTileValues * sizeof(uint16_t));
  for (size_t r = 0; r < rows; ++r) {
    const uint16_t* x = p.x + (row + r) * p.k;
    size_t c = 0;
    for (; c + 2 <= p.k; c += 2) std::memcpy(to + (c / 2 * kTileSide + r) * 2, x + c, 4);
    if (c < p.k) to[(c / 2 * kTileSide + r) * 2] = x[c];
  }
}

void bf16_linear(const Bf16Product& p, Bf16Instructions use, ThreadPool& pool) {
  const size_t columns = columns_of_task(p, pool.size());
  std::optional<Scratch> memory;
  uint16_t* packed = nullptr;
  if (use == Bf16Instructions::kAmx) {
    const size_t blocks = tiles_along(p.m, kTileSide);
    memory.emplace(blocks * tiles_along(p.k, kTileDepth) * kTileValues / 2);
    packed = reinterpret_cast<uint16_t*>(memory->data());
    const auto pack = [&](size_t block) { pack_for_tiles(p, block, packed); };
    pool.parallel_for(blocks, std::ref(pack));
  }
  const auto task = [&](size_t index) {
    [[maybe_unused]] const size_t begin = index * columns, end = std::min(p.n, begin + columns);
#if defined(__x86_64__)
    if (packed == nullptr) return bf16_columns_avx512(p, begin, end);
    bf16_columns_amx(p, packed, begin, end);
#endif
  };
  // std::ref avoids a copy of the task, which would allocate.
  pool.parallel_for(tiles_along(p.n, columns), std::ref(task));
}

}  // namespace ferry::kernels
