// linear() multiplies rows: directly with the stored weights for a few rows, in blocks for a batch.
// Both ways add in the order of compute_tile-inl.h, so a row of a batch has the bits that it has
// alone.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_linear.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_tile-inl.h"
#include "kernels/fetch_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

static_assert(kTaskCols % kTileCols == 0);

// Computes columns [begin, end) of out for a few rows.
void linear_direct_task(const LinearArgs& a, size_t begin, size_t end) {
  const RowProducts p{a.x, a.x_stride, a.m, a.w, a.k, a.out, a.n, a.k, fetch_ahead(a.m).band};
  if (a.dtype == DType::kF32) return banded_products<float>(p, begin, end);
  if (a.dtype == DType::kBF16) return banded_products<BF16>(p, begin, end);
  banded_products<F16>(p, begin, end);
}

// Writes weights [j, j + kTileCols) x [c, c + depth) as f32, with zeros for missing rows and beyond
// the end of k. Vectors of the rows alternate, so that the tile is read from one end to the other.
template <class T>
HWY_INLINE void widen(const LinearArgs& args, size_t j, size_t c, size_t depth, float* tile) {
  const F32 d;
  for (size_t r = 0; r < kTileCols; ++r, tile += kLanes) {
    const size_t used = j + r < args.n ? (depth < args.k - c ? depth : args.k - c) : 0;
    const T* w = static_cast<const T*>(args.w) + (j + r) * args.k + c;
    size_t i = 0;
    for (; i + kLanes <= used; i += kLanes) hn::Store(load_f32(d, w + i), d, tile + i * kTileCols);
    for (; i < depth; i += kLanes) {
      T rest[kLanes] = {};
      if (i < used) std::memcpy(rest, w + i, (used - i) * sizeof(T));
      hn::Store(load_f32(d, rest), d, tile + i * kTileCols);
    }
  }
}

struct Block {
  size_t i, j;        // first row of x, first column of out
  size_t c, depth;    // range of k; depth is a multiple of kMaxLanes
  bool first, last;   // whether this is the first or last block of k
  const float* tile;  // weights as f32
  float* partial;     // accumulators kept from one block of k to the next
};

template <size_t kM, class T>
HWY_INLINE void block_tile(const LinearArgs& args, const Block& b) {
  const F32 d;
  constexpr size_t kCount = kM * kTileCols;
  VF32 acc[kCount];
  if (b.first) {
    clear(acc);
  } else {
    for (size_t i = 0; i < kCount; ++i) acc[i] = hn::Load(d, b.partial + i * kLanes);
  }
  const float* x = args.x + b.i * args.x_stride + b.c;
  for (size_t c = 0; c < b.depth; c += kLanes) {
    step<kM, kTileCols>(x + c, args.x_stride, b.tile + c * kTileCols, kLanes, acc);
  }
  if (!b.last) {
    for (size_t i = 0; i < kCount; ++i) hn::Store(acc[i], d, b.partial + i * kLanes);
    return;
  }
  T out[round_up(kCount, kMaxLanes)];
  finish(acc, out);
  T* to = static_cast<T*>(args.out) + b.i * args.n + b.j;
  const size_t cols = args.n - b.j;
  for (size_t i = 0; i < kM; ++i, to += args.n) {
    // GCC copies a length that it does not know by an instruction that is slow to start.
    if (cols >= kTileCols) {
      std::memcpy(to, out + i * kTileCols, kTileCols * sizeof(T));
    } else {
      for (size_t j = 0; j < cols; ++j) to[j] = out[i * kTileCols + j];
    }
  }
}

// Computes rows [b.i, end) of x with one tile of weights.
template <class T>
HWY_INLINE void block_column(const LinearArgs& args, Block b, size_t end) {
  for (; b.i + kTileRows <= end; b.i += kTileRows) {
    block_tile<kTileRows, T>(args, b);
    b.partial += kTileRows * kTileCols * kLanes;
  }
  for (; b.i < end; ++b.i) {
    block_tile<1, T>(args, b);
    b.partial += kTileCols * kLanes;
  }
}

template <class T>
void linear_block(const LinearArgs& args, size_t begin, size_t end, float* scratch) {
  const size_t padded = round_up(args.k, kMaxLanes);
  const size_t blocks = (padded + kBlockDepth - 1) / kBlockDepth;
  const size_t depth = round_up((padded + blocks - 1) / blocks, kMaxLanes);
  for (size_t i = 0; i < args.m; i += kBlockRows) {
    const size_t i_end = i + kBlockRows < args.m ? i + kBlockRows : args.m;
    for (size_t c = 0; c < padded; c += depth) {
      Block b{i, begin, c, depth, c == 0, c + depth >= padded, scratch, nullptr};
      if (b.last) b.depth = padded - c;
      for (; b.j < end; b.j += kTileCols) {
        b.partial = scratch + kTileCols * kBlockDepth + (b.j - begin) * kBlockRows * kLanes;
        widen<T>(args, b.j, c, b.depth, scratch);
        block_column<T>(args, b, i_end);
      }
    }
  }
}

// Computes columns [begin, end) of out for all m rows; `scratch` holds block_scratch(end - begin)
// values.
void linear_block_task(const LinearArgs& args, size_t begin, size_t end, float* scratch) {
  if (args.dtype == DType::kF32) return linear_block<float>(args, begin, end, scratch);
  if (args.dtype == DType::kBF16) return linear_block<BF16>(args, begin, end, scratch);
  linear_block<F16>(args, begin, end, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <functional>
#include <optional>

#include "kernels/bf16_linear.h"
#include "kernels/common_target.h"
#include "kernels/compute.h"
#include "kernels/compute_scratch.h"
#include "kernels/processor.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(linear_direct_task);
HWY_EXPORT(linear_block_task);

// A task should be long enough to pay for its cold start, and short enough to share the work.
constexpr size_t kMinRowTaskBytes = size_t{1} << 16;
constexpr size_t kMaxRowTaskBytes = size_t{1} << 19;
// For up to this many rows it is cheaper to widen the weights in registers for each tile of rows
// than to widen a copy. Fetches ahead allow taller tiles (most_bands() in compute_tile-inl.h).
constexpr size_t kFewRows = 12, kFewRowsWithFetches = 18;
size_t few_rows() {
  const bool fetches = fetch_ahead(kFewRows).band.bytes > 0;
  return fetches && processor().avx512 ? kFewRowsWithFetches : kFewRows;
}

size_t count(int64_t n) { return static_cast<size_t>(n); }

// Returns whether products read the rows of x as they are. Many rows are worth a copy where vectors
// would cross the lines of the cache.
bool is_read_in_place(const LinearArgs& args) {
  return args.dtype == DType::kF32 && args.k % kMaxLanes == 0 &&
         (args.m <= few_rows() ||
          reinterpret_cast<uintptr_t>(args.x) % (kMaxLanes * sizeof(float)) == 0);
}

// Copies the rows of x as f32, padded with zeros, into `copy`. Sets args.x to the copy.
void widen_x(const void* x, float* copy, LinearArgs& args, ThreadPool& pool) {
  const size_t row_bytes = args.k * dtype_bytes(args.dtype);
  const auto widen_row = [&](size_t i) {
    float* row = copy + i * args.x_stride;
    cast(args.dtype, static_cast<const char*>(x) + i * row_bytes, DType::kF32, row,
         static_cast<int64_t>(args.k));
    std::fill(row + args.k, row + args.x_stride, 0.0f);
  };
  pool.parallel_for(args.m, std::ref(widen_row));
  args.x = copy;
}

void linear_few_rows(const LinearArgs& args, ThreadPool& pool) {
  const size_t row_bytes = std::max<size_t>(1, args.k * dtype_bytes(args.dtype));
  const size_t share = row_bytes * args.n / (2 * pool.size());
  const size_t bytes = std::clamp(share, kMinRowTaskBytes, kMaxRowTaskBytes);
  const size_t rows = round_up((bytes + row_bytes - 1) / row_bytes, kTaskCols);
  const auto task = [&](size_t index) {
    HWY_DYNAMIC_DISPATCH(linear_direct_task)
    (args, index * rows, std::min(args.n, (index + 1) * rows));
  };
  // std::ref avoids a copy of the task, which would allocate.
  pool.parallel_for((args.n + rows - 1) / rows, std::ref(task));
}

void linear_batch(const LinearArgs& args, ThreadPool& pool) {
  const size_t cols = std::min(round_up(args.n / 64 + 1, kTaskCols), kMaxTaskCols);
  pool.parallel_for((args.n + cols - 1) / cols, [&](size_t task) {
    const Scratch scratch(block_scratch(cols));
    HWY_DYNAMIC_DISPATCH(linear_block_task)
    (args, task * cols, std::min(args.n, (task + 1) * cols), scratch.data());
  });
}

}  // namespace

void linear(DType dtype, const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
            ThreadPool& pool) {
  if (m <= 0 || n <= 0) return;
  if (dtype == DType::kBF16 && k > 0 && Bf16Choice::uses_instructions() &&
      uses_all_instructions()) {
    const Bf16Instructions use = bf16_instructions();
    if (use != Bf16Instructions::kNone) {
      const auto at = [](auto* p) { return static_cast<const uint16_t*>(p); };
      return bf16_linear({at(x), at(w), static_cast<uint16_t*>(out), count(m), count(n), count(k)},
                         use, pool);
    }
  }
  LinearArgs args{dtype,    static_cast<const float*>(x), size_t(k), w, out, size_t(m), size_t(n),
                  size_t(k)};
  std::optional<Scratch> copy;
  if (!is_read_in_place(args)) {
    args.x_stride = round_up(args.k, kMaxLanes);
    copy.emplace(args.m * args.x_stride);
    widen_x(x, copy->data(), args, pool);
  }
  if (args.m <= few_rows() || k == 0) {
    linear_few_rows(args, pool);
  } else {
    linear_batch(args, pool);
  }
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
