// Products with matrices of 4-bit and 8-bit codes, as XNNPACK's fully-connected operators compute
// them: the activations of each row are quantised to 8 bits at run time ("dynamic"), the sums of
// products of codes are exact integers. Functions over raw memory; callers check shapes.
//
// As everywhere in kernels/: results do not depend on the number of threads, and a row of a batch
// has the bits that it has alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ferry::kernels {

// A matrix [rows, columns] as it is stored; row-major, output rows first. Nothing is aligned.
struct CodedMatrix {
  int bits = 8;                     // 4: two codes in a byte, low nibble first, code + 8. 8: i8
  int64_t rows = 0, columns = 0;    // columns of 4 bits: an even number
  int64_t group = 0;                // columns that share a scale; 0: all. Divides `columns`
  DType scale_dtype = DType::kF32;  // f32 or bf16
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  // [rows, columns / group]
};

// A matrix and what the dynamic products need to know of it, which the first of them finds out
// while it has the codes in the cache. Codes and scales are read where they are stored and must
// outlive this object. For one product at a time.
class PackedMatrix {
 public:
  static PackedMatrix pack(const CodedMatrix& matrix);
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  int64_t rows() const;
  int64_t columns() const;
  const CodedMatrix& matrix() const;
  uint64_t bytes() const;  // of memory, without codes and scales

  struct Impl;
  explicit PackedMatrix(std::unique_ptr<Impl> impl);
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// One product of a call: out [m, matrix.rows].
struct LinearTask {
  const PackedMatrix* matrix = nullptr;
  const float* bias = nullptr;  // [rows] or nullptr
  float* out = nullptr;
};

// out = x * matrix^T + bias for each task, with x [m, columns] quantised row by row: one pass over
// the rows for all tasks, one parallel region. `scratch` has dynamic_linear_scratch() bytes,
// aligned to 64.
uint64_t dynamic_linear_scratch(int64_t m, int64_t columns);
void dynamic_linear(const float* x, int64_t m, int64_t columns, std::span<const LinearTask> tasks,
                    std::span<std::byte> scratch, ThreadPool& pool);

// As above, but activations are not quantised: f32 x codes.
void weight_only_linear(const float* x, int64_t m, int64_t columns,
                        std::span<const LinearTask> tasks, ThreadPool& pool);
// One of them; such a product needs nothing beforehand.
void weight_only_linear(const float* x, int64_t m, const CodedMatrix& matrix, const float* bias,
                        float* out, ThreadPool& pool);

// A row of activations as the dynamic products quantise it: real = (code - zero_point) *
// inverse_scale. A row with a NaN, an infinity or a range beyond f32 gets codes of 0 and a scale of
// NaN, which makes its products NaN. A range below 2^-120 counts as 0.
struct QuantizedRow {
  float inverse_scale = 1;
  int32_t zero_point = 0;
};
QuantizedRow quantize_row(std::span<const float> row, std::span<int8_t> codes);

}  // namespace ferry::kernels
