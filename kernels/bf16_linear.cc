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

thread_local bool use_instructions_here = false;

}  // namespace

Bf16Choice::Bf16Choice(bool use_instructions) : before_(use_instructions_here) {
  use_instructions_here = use_instructions;
}
Bf16Choice::~Bf16Choice() { use_instructions_here = before_; }
bool Bf16Choice::uses_instructions() { return use_instructions_here; }

Bf16Instructions bf16_instructions() {
  if (processor().amx_bf16) return Bf16Instructions::kAmx;
  if (processor().neon_bf16) return Bf16Instructions::kNeon;
  return processor().fast_avx512_bf16 ? Bf16Instructions::kAvx512 : Bf16Instructions::kNone;
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

void pack_pair(const Bf16Product& p, size_t pair, uint16_t* packed) {
  const size_t steps = tiles_along(p.k, 4);
  uint16_t* to = packed + pair * steps * 8;
  std::memset(to, 0, steps * 8 * sizeof(uint16_t));
  for (size_t r = 0; r < 2 && 2 * pair + r < p.m; ++r) {
    const uint16_t* x = p.x + (2 * pair + r) * p.k;
    for (size_t c = 0; c < p.k; c += 4) {
      const size_t count = std::min<size_t>(4, p.k - c);
      std::memcpy(to + 2 * c + 4 * r, x + c, count * sizeof(uint16_t));
    }
  }
}

namespace {

// Writes a row of x to rows of spaced_row() values.
void copy_row(const Bf16Product& p, size_t row, uint16_t* to) {
  std::memcpy(to + row * spaced_row(p.k), p.x + row * p.k, p.k * sizeof(uint16_t));
}

// The copy of x that the columns of a set of instructions read, if they need one.
class Packed {
 public:
  Packed(const Bf16Product& p, Bf16Instructions use, ThreadPool& pool) {
    if (use == Bf16Instructions::kAmx) {
      const size_t tiles = tiles_along(p.k, kTileDepth);
      pack(tiles_along(p.m, kTileSide), tiles * kTileValues, p, pack_for_tiles, pool);
    } else if (use == Bf16Instructions::kNeon) {
      pack(tiles_along(p.m, 2), tiles_along(p.k, 4) * 8, p, pack_pair, pool);
      // A copy for fewer rows costs more than it gains.
    } else if (p.m > kTileSide && spaced_row(p.k) != p.k) {
      pack(p.m, spaced_row(p.k), p, copy_row, pool);
    }
  }
  const uint16_t* values() const { return values_; }

 private:
  void pack(size_t parts, size_t part_values, const Bf16Product& p,
            void (*write)(const Bf16Product&, size_t, uint16_t*), ThreadPool& pool) {
    memory_.emplace(parts * part_values / 2);
    values_ = reinterpret_cast<uint16_t*>(memory_->data());
    const auto task = [&](size_t part) { write(p, part, values_); };
    // std::ref avoids a copy of the task, which would allocate.
    pool.parallel_for(parts, std::ref(task));
  }

  std::optional<Scratch> memory_;
  uint16_t* values_ = nullptr;
};

}  // namespace

void bf16_linear(const Bf16Product& p, Bf16Instructions use, ThreadPool& pool) {
  const size_t columns = columns_of_task(p, pool.size());
  const Packed packed(p, use, pool);
  const auto task = [&](size_t index) {
    [[maybe_unused]] const size_t begin = index * columns, end = std::min(p.n, begin + columns);
#if defined(__x86_64__)
    if (use == Bf16Instructions::kAmx) return bf16_columns_amx(p, packed.values(), begin, end);
    Bf16Product product = p;
    if (packed.values() != nullptr) {
      product.x = packed.values();
      product.x_stride = spaced_row(p.k);
    }
    bf16_columns_avx512(product, begin, end);
#elif FERRY_NEON_BF16
    bf16_columns_neon(p, packed.values(), begin, end);
#endif
  };
  pool.parallel_for(tiles_along(p.n, columns), std::ref(task));
}

}  // namespace ferry::kernels
