// Operators on matrices in blocks of GGUF files.
#include <algorithm>
#include <string>

#include "core/text.h"
#include "kernels/block_linear.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

// Returns the matrix in `blocks` whose rows have `columns` columns.
Result<BlockMatrix> matrix_of(const Tensor& blocks, int64_t columns, const std::string& encoding) {
  BlockMatrix matrix;
  matrix.layout = find_block_layout(encoding);
  if (matrix.layout == nullptr) {
    return fail(ErrorCode::kUnsupported, fmt::format("blocks of {}", quoted(encoding)));
  }
  FERRY_RETURN_IF_ERROR(require_rank(blocks, 2));
  FERRY_RETURN_IF_ERROR(require_dtype(blocks, DType::kU8));
  matrix.rows = blocks.size(0);
  matrix.columns = columns;
  matrix.blocks = blocks.data;
  const bool whole = columns > 0 && columns % matrix.layout->elements == 0;
  if (whole && blocks.size(1) == matrix.row_bytes()) return matrix;
  return bad_input(fmt::format("{} is not rows of {} columns in {}", describe(blocks), columns,
                               matrix.layout->name));
}

}  // namespace

Status block_linear(const Call& call) {
  const Tensor& input = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_dtype(input, DType::kF32));
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  if (input.rank() == 0) return require_rank(input, 1);
  const BlockMatrix matrix =
      FERRY_TRY(matrix_of(tensor(call, 1), input.sizes.back(), call.args[2]->text));
  Dims sizes = input.sizes;
  sizes[sizes.rank() - 1] = matrix.rows;
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  block_linear(input.as<float>(), out.numel / matrix.rows, matrix, out.as<float>(), call.pool);
  return {};
}

Status block_embedding(const Call& call) {
  const Tensor& indices = tensor(call, 1);
  Tensor& out = tensor(call, 4);
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  const BlockMatrix matrix =
      FERRY_TRY(matrix_of(tensor(call, 0), integer(call, 2), call.args[3]->text));
  FERRY_RETURN_IF_ERROR(require_indices(indices, matrix.rows));
  Dims sizes = indices.sizes;
  if (sizes.rank() == kMaxRank) return bad_input("the result has too many dimensions");
  sizes.push_back(matrix.columns);
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  const int64_t piece = std::max<int64_t>(1, (int64_t{1} << 14) / matrix.columns);
  for_pieces(call.pool, indices.numel, piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      block_row(matrix, index_at(indices, i), out.as<float>() + i * matrix.columns);
    }
  });
  return {};
}

}  // namespace ferry::kernels
