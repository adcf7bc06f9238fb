// Products with matrices of 4-bit and 8-bit codes, as XNNPACK's fully-connected operators compute
// them. The activations of each row are quantised to 8 bits at run time ("dynamic"), and the sums
// of products of codes are exact integers. The functions work on raw memory; callers check shapes.
//
// As everywhere in kernels/, results do not depend on the number of threads, and a row of a batch
// has the bits that it has alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ferry::kernels {

// A stored matrix [rows, columns], row-major with output rows first. Nothing is aligned.
struct CodedMatrix {
  int bits = 8;                   // 4: two codes in a byte, low nibble first, each code + 8; 8: i8
  int64_t rows = 0, columns = 0;  // `columns` is even if codes have 4 bits
  int64_t group = 0;  // columns that share a scale, a divisor of `columns`; 0 for all columns
  DType scale_dtype = DType::kF32;  // f32 or bf16
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;  // [rows, columns / group]
};

// A matrix and the sums that dynamic products need. The first product computes the sums while it
// has the codes in the cache. Codes and scales are read from the caller's memory, which must
// outlive this object. Only one product may use it at a time.
class PackedMatrix {
 public:
  static PackedMatrix pack(const CodedMatrix& matrix);
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  int64_t rows() const;
  int64_t columns() const;
  const CodedMatrix& matrix() const;
  uint64_t bytes() const;  // bytes of memory, without codes and scales

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

// Computes out = x * matrix^T + bias for each task, with x [m, columns] quantised row by row. There
// is one pass over the rows and one parallel region for all tasks. `scratch` has
// dynamic_linear_scratch() bytes, aligned to 64.
uint64_t dynamic_linear_scratch(int64_t m, int64_t columns);
void dynamic_linear(const float* x, int64_t m, int64_t columns, std::span<const LinearTask> tasks,
                    std::span<std::byte> scratch, ThreadPool& pool);

// Computes the products of f32 activations, which are not quantised, with codes.
void weight_only_linear(const float* x, int64_t m, int64_t columns,
                        std::span<const LinearTask> tasks, ThreadPool& pool);
// Computes one product. It needs no sums.
void weight_only_linear(const float* x, int64_t m, const CodedMatrix& matrix, const float* bias,
                        float* out, ThreadPool& pool);

// A row of activations, quantised for dynamic products: real = (code - zero_point) * inverse_scale.
// A row with a NaN, an infinity or a range beyond f32 gets codes of 0 and a scale of NaN, which
// makes its products NaN. A range below 2^-120 counts as 0.
struct QuantizedRow {
  float inverse_scale = 1;
  int32_t zero_point = 0;
};
QuantizedRow quantize_row(std::span<const float> row, std::span<int8_t> codes);

}  // namespace ferry::kernels
