// Operators on matrices in blocks of GGUF files.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

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

// Makes the task of one product, and sets the shape of its result.
Result<BlockTask> task_of(const Tensor& input, const Tensor& blocks, const std::string& encoding,
                          Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  const BlockMatrix matrix = FERRY_TRY(matrix_of(blocks, input.sizes.back(), encoding));
  Dims sizes = input.sizes;
  sizes[sizes.rank() - 1] = matrix.rows;
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  return BlockTask{matrix, out.as<float>()};
}

Status check_input(const Tensor& input) {
  FERRY_RETURN_IF_ERROR(require_dtype(input, DType::kF32));
  return input.rank() == 0 ? require_rank(input, 1) : Status();
}

int64_t rows_of(const Tensor& input) { return input.numel / input.sizes.back(); }

}  // namespace

Status block_linear(const Call& call) {
  const Tensor& input = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(check_input(input));
  const BlockTask task =
      FERRY_TRY(task_of(input, tensor(call, 1), call.args[2]->text, tensor(call, 3)));
  block_linear(input.as<float>(), rows_of(input), {&task, 1}, call.pool);
  return {};
}

Status block_linears(const Call& call) {
  // One parallel region has at most this many products.
  constexpr size_t kMostTasks = 16;
  const Tensor& input = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(check_input(input));
  const auto matrices = list(call, 1), outs = list(call, 3);
  if (matrices.size() != outs.size()) {
    return bad_input(fmt::format("{} matrices and {} results", matrices.size(), outs.size()));
  }
  std::array<BlockTask, kMostTasks> tasks;
  std::string_view encodings = call.args[2]->text;
  size_t count = 0;
  const auto run = [&] {
    block_linear(input.as<float>(), rows_of(input), std::span(tasks).first(count), call.pool);
    count = 0;
  };
  for (size_t i = 0; i < matrices.size(); ++i) {
    const std::string encoding(encodings.substr(0, encodings.find(',')));
    encodings.remove_prefix(std::min(encodings.size(), encoding.size() + 1));
    tasks[count++] = FERRY_TRY(task_of(input, *matrices[i]->tensor, encoding, *outs[i]->tensor));
    if (count == kMostTasks) run();
  }
  if (count > 0) run();
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
