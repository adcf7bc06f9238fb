// Products with blocks of GGUF files: rounds activations, and divides the work among threads.
#include "kernels/block_linear.h"

#include <limits>

#include "core/highway_targets.h"
#include "kernels/block_product.h"
// Wider vectors than those of AVX2 have nothing to do: a group has 32 codes. Products of bytes are
// in files of their own (block_sets.cc).
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS                                                          \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128 | HWY_RVV)
// These includes must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block_linear.cc"
#include "hwy/foreach_target.h"
// These includes must follow foreach_target.h.
#include "kernels/block_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// ---- activations

// Rounds 32 values to codes. Returns the scale: NaN if a value is not finite, 0 if all are tiny.
HWY_INLINE float round_group(const float* x, int8_t* codes) {
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<uint32_t, decltype(d)> du;
  const hn::Rebind<int8_t, decltype(d)> d8;
  auto largest = hn::Zero(du);
  for (size_t i = 0; i < kGroupColumns; i += hn::Lanes(d)) {
    const auto magnitude = hn::And(hn::BitCast(du, load_f32(d, x + i)), hn::Set(du, 0x7fffffffu));
    largest = hn::Max(largest, magnitude);
  }
  uint32_t bits = 0;
  HWY_ALIGN uint32_t lanes[8];
  hn::StoreU(largest, du, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) bits = lanes[i] > bits ? lanes[i] : bits;
  float most;
  std::memcpy(&most, &bits, sizeof most);
  const bool finite = bits < 0x7f800000u;
  if (!finite || most < 0x1p-120f) {
    std::memset(codes, 0, kGroupColumns);
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const auto factor = hn::Set(d, 127.0f / most);
  for (size_t i = 0; i < kGroupColumns; i += hn::Lanes(d)) {
    const auto rounded = hn::NearestInt(hn::Mul(load_f32(d, x + i), factor));
    hn::StoreU(hn::DemoteTo(d8, rounded), d8, codes + i);
  }
  return most / 127.0f;
}

void round_row(const float* x, const BlockActivations& a, size_t row) {
  int8_t* codes = a.codes(row);
  float* numbers = a.numbers(row);
  std::memset(codes, 0, a.chunks() * kChunkColumns);
  std::memset(numbers, 0, a.chunks() * BlockActivations::kNumbers * sizeof(float));
  for (size_t g = 0; g < a.columns / kGroupColumns; ++g) {
    const int8_t* group = codes + kGroupColumns * g;
    const float scale = round_group(x + kGroupColumns * g, codes + kGroupColumns * g);
    int sums[2] = {0, 0};
    for (size_t i = 0; i < 16; ++i) sums[0] += group[i];
    for (size_t i = 16; i < kGroupColumns; ++i) sums[1] += group[i];
    float* to = numbers + g / kChunkGroups * BlockActivations::kNumbers + g % kChunkGroups;
    to[0] = scale;
    to[8] = scale * static_cast<float>(sums[0] + sums[1]);
    to[16] = scale * static_cast<float>(sums[0]);
    to[24] = scale * static_cast<float>(sums[1]);
    const int32_t sum = sums[0] + sums[1];
    std::memcpy(to + BlockActivations::kCodeSums, &sum, sizeof sum);
  }
}

// ---- the functions of this target

template <class T>
void unpack_row(const BlockMatrix& matrix, const uint8_t* blocks, float* out) {
  const auto columns = static_cast<size_t>(matrix.columns);
  RowReader<T> row = {blocks, columns / T::kElements};
  BlockChunk c = {};
  for (size_t k = 0; k < columns; k += kChunkColumns) {
    row.next(c);
    for (size_t i = 0; i < kChunkColumns && k + i < columns; ++i) {
      const size_t g = i / kGroupColumns, h = i / 16 % 2;
      const int code = T::kSigned ? static_cast<int8_t>(c.codes[i]) : int{c.codes[i]};
      const float scale =
          T::kHalves ? c.scale[g] * static_cast<float>(c.half[2 * g + h]) : c.scale[g];
      float value = scale * static_cast<float>(code - T::kZero);
      if constexpr (T::kMinima) value += c.minimum[T::kHalves ? h : 0][g];
      out[k + i] = value;
    }
  }
}

void block_row_task(const BlockMatrix& matrix, const uint8_t* blocks, float* out) {
  with_block_type(matrix.layout->type, [&]<class T>() { unpack_row<T>(matrix, blocks, out); });
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <functional>

#include "kernels/compute_scratch.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(round_row);
HWY_EXPORT(block_scratch);
HWY_EXPORT(block_task);
HWY_EXPORT(block_row_task);

constexpr BlockLayout kLayouts[] = {
    {"q4_0", BlockType::kQ4_0, 32, 18},    {"q4_1", BlockType::kQ4_1, 32, 20},
    {"q5_0", BlockType::kQ5_0, 32, 22},    {"q5_1", BlockType::kQ5_1, 32, 24},
    {"q8_0", BlockType::kQ8_0, 32, 34},    {"q2_k", BlockType::kQ2K, 256, 84},
    {"q3_k", BlockType::kQ3K, 256, 110},   {"q4_k", BlockType::kQ4K, 256, 144},
    {"q5_k", BlockType::kQ5K, 256, 176},   {"q6_k", BlockType::kQ6K, 256, 210},
    {"iq4_nl", BlockType::kIQ4NL, 32, 18}, {"iq4_xs", BlockType::kIQ4XS, 256, 136},
    {"mxfp4", BlockType::kMXFP4, 32, 17},
};

// A task should have at least this many bytes of the matrix, and this many products: see
// quantized_linear.cc.
constexpr size_t kTaskBytes = size_t{1} << 18;
constexpr size_t kTaskProducts = size_t{1} << 20;

// Memory of at least `bytes` bytes.
size_t floats_of(size_t bytes) { return bytes / sizeof(float) + 1; }

void round_rows(const float* x, const BlockActivations& rows, ThreadPool& pool) {
  const size_t step = std::max<size_t>(1, (size_t{1} << 14) / rows.columns);
  const auto piece = [&](size_t index) {
    for (size_t i = index * step; i < std::min(rows.rows, (index + 1) * step); ++i) {
      HWY_DYNAMIC_DISPATCH(round_row)(x + i * rows.columns, rows, i);
    }
  };
  const size_t pieces = (rows.rows + step - 1) / step;
  if (pieces == 1) return piece(0);
  pool.parallel_for(pieces, std::ref(piece));
}

}  // namespace

const BlockLayout* find_block_layout(std::string_view name) {
  const auto* found = std::ranges::find(kLayouts, name, &BlockLayout::name);
  return found == std::end(kLayouts) ? nullptr : found;
}

void block_linear(const float* x, int64_t m, std::span<const BlockTask> tasks, ThreadPool& pool) {
  const auto sets = block_sets();
  block_linear_with(sets.empty() ? nullptr : sets.front(), x, m, tasks, pool);
}

void block_linear_with(const BlockSet* set, const float* x, int64_t m,
                       std::span<const BlockTask> tasks, ThreadPool& pool) {
  if (m <= 0 || tasks.empty() || tasks.front().matrix.columns <= 0) return;
  const auto columns = static_cast<size_t>(tasks.front().matrix.columns);
  BlockActivations rows = {nullptr, static_cast<size_t>(m), columns};
  const Scratch slots(floats_of(rows.rows * rows.slot_bytes()));
  rows.slots = reinterpret_cast<std::byte*>(slots.data());
  round_rows(x, rows, pool);
  // The pieces of a task are some rows of its matrix.
  const auto step_of = [&](const BlockTask& task) {
    const auto row_bytes = static_cast<size_t>(task.matrix.row_bytes());
    const size_t work =
        rows.rows <= kFewBlockRows ? kTaskBytes / row_bytes : kTaskProducts / (rows.rows * columns);
    const size_t share = static_cast<size_t>(task.matrix.rows) / (4 * pool.size());
    return (std::min(work, share) / 16 + 1) * 16;
  };
  const auto pieces_of = [&](const BlockTask& task) {
    const size_t step = step_of(task);
    return (static_cast<size_t>(task.matrix.rows) + step - 1) / step;
  };
  size_t pieces = 0;
  for (const BlockTask& task : tasks) pieces += pieces_of(task);
  const size_t scratch = set != nullptr ? set->scratch(rows.rows, columns)
                                        : HWY_DYNAMIC_DISPATCH(block_scratch)(rows.rows, columns);
  const auto piece = [&](size_t index) {
    const BlockTask* task = tasks.data();
    for (size_t count = pieces_of(*task); index >= count; count = pieces_of(*task)) {
      index -= count;
      ++task;
    }
    const BlockProduct p{task->matrix, rows, task->out};
    const size_t begin = index * step_of(*task);
    const size_t end = std::min(static_cast<size_t>(p.matrix.rows), begin + step_of(*task));
    const Scratch own(floats_of(scratch));
    if (set != nullptr) return set->task(p, begin, end, own.data());
    HWY_DYNAMIC_DISPATCH(block_task)(p, begin, end, own.data());
  };
  pool.parallel_for(pieces, std::ref(piece));
}

void block_row(const BlockMatrix& matrix, int64_t row, float* out) {
  const auto* blocks = reinterpret_cast<const uint8_t*>(matrix.blocks) + row * matrix.row_bytes();
  HWY_DYNAMIC_DISPATCH(block_row_task)(matrix, blocks, out);
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
