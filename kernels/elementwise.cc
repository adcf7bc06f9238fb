#include "kernels/elementwise.h"

#include <algorithm>
#include <array>

namespace ferry::kernels {
namespace {

constexpr size_t kMaxInputs = 3;
constexpr int64_t kChunk = 1024;  // values converted at a time
constexpr int64_t kPiece = 4096;  // values of one item of the parallel loop

// The walk over each input: rows of `inner` values, over which an input either advances by one or
// stands still. Tensors are contiguous, so no other case remains once dimensions are merged.
struct Walk {
  int64_t inner = 1;
  std::array<bool, kMaxInputs> many = {};
  Dims outer;                            // sizes of the other dimensions, outermost first
  std::array<Dims, kMaxInputs> strides;  // strides in dimensions `outer`, in elements
};

// Returns the stride of `input` in dimension `dim` of `out`.
int64_t broadcast_stride(const Dims& input, const Dims& strides, const Dims& out, int dim) {
  const int at = dim - (out.rank() - input.rank());
  return at < 0 || input[at] == 1 ? 0 : strides[at];
}

// Returns whether every input has either one value or as many as `out`, and so the same order.
bool is_flat(std::span<const Operand> inputs, int64_t count) {
  return std::ranges::all_of(inputs, [&](const Operand& input) {
    const int64_t n = numel(input.sizes.span());
    return n == 1 || n == count;
  });
}

// Returns the dimensions of `out` without those of size 1. Adjacent dimensions are merged if every
// input allows it.
Walk plan_walk(std::span<const Operand> inputs, const Dims& out) {
  Walk walk;
  if (const int64_t count = numel(out.span()); is_flat(inputs, count)) {
    walk.inner = count;
    for (size_t k = 0; k < inputs.size(); ++k) walk.many[k] = numel(inputs[k].sizes.span()) != 1;
    return walk;
  }
  std::array<Dims, kMaxInputs> own;
  for (size_t k = 0; k < inputs.size(); ++k) own[k] = contiguous_strides(inputs[k].sizes);
  for (int dim = 0; dim < out.rank(); ++dim) {
    if (out[dim] == 1) continue;
    std::array<int64_t, kMaxInputs> stride = {};
    bool merge = !walk.outer.empty();
    for (size_t k = 0; k < inputs.size(); ++k) {
      stride[k] = broadcast_stride(inputs[k].sizes, own[k], out, dim);
      merge = merge && walk.strides[k].back() == stride[k] * out[dim];
    }
    if (merge) {
      walk.outer[walk.outer.rank() - 1] *= out[dim];
    } else {
      walk.outer.push_back(out[dim]);
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (merge) walk.strides[k].pop_back();
      walk.strides[k].push_back(stride[k]);
    }
  }
  if (walk.outer.empty()) return walk;
  walk.inner = walk.outer.back();
  walk.outer.pop_back();
  for (size_t k = 0; k < inputs.size(); ++k) {
    walk.many[k] = walk.strides[k].back() != 0;
    walk.strides[k].pop_back();
  }
  return walk;
}

// Returns the offset of each input at row `row`, in elements.
std::array<int64_t, kMaxInputs> row_offsets(const Walk& walk, size_t inputs, int64_t row) {
  std::array<int64_t, kMaxInputs> offsets = {};
  for (int dim = walk.outer.rank() - 1; dim >= 0; --dim) {
    const int64_t at = row % walk.outer[dim];
    row /= walk.outer[dim];
    for (size_t k = 0; k < inputs; ++k) offsets[k] += at * walk.strides[k][dim];
  }
  return offsets;
}

// Computes results [begin, end) in row-major order.
template <class C, class R>
void run_rows(std::span<const Operand> inputs, const Walk& walk, Tensor& out, RowFn rows,
              const RowParams& params, int64_t begin, int64_t end) {
  alignas(64) C values[kMaxInputs][kChunk];
  alignas(64) R results[kChunk];
  RowInput row[kMaxInputs];
  const bool direct_out = stored_as<R>(out.dtype);
  const int64_t chunk = direct_out ? kPiece : kChunk;
  for (int64_t at = begin; at < end;) {
    const std::array<int64_t, kMaxInputs> offsets =
        row_offsets(walk, inputs.size(), at / walk.inner);
    const int64_t column = at % walk.inner;
    int64_t n = std::min({walk.inner - column, end - at, chunk});
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (walk.many[k] && !stored_as<C>(inputs[k].dtype)) n = std::min(n, kChunk);
    }
    for (size_t k = 0; k < inputs.size(); ++k) {
      const Operand& input = inputs[k];
      const int64_t offset = offsets[k] + (walk.many[k] ? column : 0);
      row[k].many = walk.many[k];
      if (input.data == nullptr) {
        values[k][0] = input.scalar.is_real() ? narrow<C>(input.scalar.real)
                                              : static_cast<C>(input.scalar.integer);
        row[k].values = values[k];
        continue;
      }
      const std::byte* source = input.data + offset * dtype_bytes(input.dtype);
      if (stored_as<C>(input.dtype)) {
        row[k].values = source;
      } else {
        load(input.dtype, source, values[k], walk.many[k] ? n : 1);
        row[k].values = values[k];
      }
    }
    std::byte* target = out.data + at * out.element_bytes();
    rows(row, direct_out ? static_cast<void*>(target) : results, n, params);
    if (!direct_out) store(out.dtype, results, target, n);
    at += n;
  }
}

}  // namespace

Status elementwise(const Call& call, std::span<const Operand> inputs, Tensor& out, Compute compute,
                   RowResult result, RowFn rows, const RowParams& params) {
  Dims sizes = inputs[0].sizes;
  for (const Operand& input : inputs.subspan(1)) {
    sizes = FERRY_TRY(broadcast(sizes, input.sizes));
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  const Walk walk = plan_walk(inputs, sizes);
  dispatch(compute, [&]<class C>(Tag<C>) {
    for_pieces(call.pool, out.numel, kPiece, [&](int64_t begin, int64_t end) {
      if (result == RowResult::kBool) {
        run_rows<C, Bool>(inputs, walk, out, rows, params, begin, end);
      } else {
        run_rows<C, C>(inputs, walk, out, rows, params, begin, end);
      }
    });
  });
  return {};
}

}  // namespace ferry::kernels
