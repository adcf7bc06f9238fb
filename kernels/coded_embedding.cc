// Embeds rows of a table of codes: (code - zero point) * scale in f32, then a cast to the dtype of
// the out. Codes are i8 or u8, or are packed in u8 with an offset: two to a byte, the high bits
// first, or four to a byte, the low bits first. Each row, or each group of a row, has a scale.
// Indices are checked here; the official kernels of 4-bit and 2-bit tables do not check them.
#include "kernels/compute_scratch.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

struct Table {
  const Tensor *weight, *scales, *zero_points, *indices;
  int bits;
  int64_t columns, groups;
};

Status require_castable(const Tensor& tensor) {
  if (is_castable(tensor.dtype)) return {};
  return bad_input(fmt::format("{} must be f32, f16 or bf16", describe(tensor)));
}

Status check_weight(const Table& table) {
  FERRY_RETURN_IF_ERROR(require_rank(*table.weight, 2));
  if (table.bits == 8 && table.weight->dtype == DType::kI8) return {};
  return require_dtype(*table.weight, DType::kU8);
}

Status check_scales(const Table& table) {
  const Tensor& scales = *table.scales;
  FERRY_RETURN_IF_ERROR(require_castable(scales));
  if (scales.rank() != 1) FERRY_RETURN_IF_ERROR(require_rank(scales, 2));
  if (scales.size(0) != table.weight->size(0) || table.groups == 0 ||
      table.columns % table.groups != 0) {
    return bad_input(fmt::format("{} does not fit {}", describe(scales), describe(*table.weight)));
  }
  if (table.zero_points == nullptr) return {};
  FERRY_RETURN_IF_ERROR(require_same_dtype(*table.zero_points, scales));
  return require_sizes(*table.zero_points, scales.sizes);
}

// Arguments 0 to 5 are weight, scales, zero points?, least code, greatest code, indices.
Result<Table> table_of(const Call& call, const Tensor& out) {
  Table table = {&tensor(call, 0),
                 &tensor(call, 1),
                 optional_tensor(call, 2),
                 &tensor(call, 5),
                 call.variant,
                 0,
                 1};
  FERRY_RETURN_IF_ERROR(check_weight(table));
  table.columns = table.weight->size(1) * (8 / table.bits);
  if (table.scales->rank() == 2) table.groups = table.scales->size(1);
  FERRY_RETURN_IF_ERROR(check_scales(table));
  if (integer(call, 3) > integer(call, 4)) {
    return bad_input(fmt::format("codes from {} to {}", integer(call, 3), integer(call, 4)));
  }
  FERRY_RETURN_IF_ERROR(require_castable(out));
  FERRY_RETURN_IF_ERROR(require_indices(*table.indices, table.weight->size(0)));
  return table;
}

void read_codes(const Table& table, int64_t row, float* to) {
  const int64_t bytes = table.weight->size(1);
  const uint8_t* from = table.weight->as<uint8_t>() + row * bytes;
  if (table.bits == 8 && table.weight->dtype == DType::kI8) {
    for (int64_t i = 0; i < bytes; ++i) to[i] = static_cast<float>(static_cast<int8_t>(from[i]));
  } else if (table.bits == 8) {
    for (int64_t i = 0; i < bytes; ++i) to[i] = static_cast<float>(from[i]);
  } else if (table.bits == 4) {
    for (int64_t i = 0; i < bytes; ++i) {
      to[2 * i] = static_cast<float>((from[i] >> 4) - 8);
      to[2 * i + 1] = static_cast<float>((from[i] & 15) - 8);
    }
  } else {
    for (int64_t i = 0; i < 4 * bytes; ++i) {
      to[i] = static_cast<float>(((from[i / 4] >> (i % 4 * 2)) & 3) - 2);
    }
  }
}

float parameter(const Tensor* tensor, int64_t at) {
  if (tensor == nullptr) return 0;
  return static_cast<float>(
      load_number(tensor->dtype, tensor->data + at * tensor->element_bytes()).real);
}

void read_row(const Table& table, int64_t row, float* to) {
  read_codes(table, row, to);
  const int64_t group = table.columns / table.groups;
  for (int64_t g = 0; g < table.groups; ++g, to += group) {
    const float scale = parameter(table.scales, row * table.groups + g);
    const float zero = parameter(table.zero_points, row * table.groups + g);
    for (int64_t i = 0; i < group; ++i) to[i] = (to[i] - zero) * scale;
  }
}

Status read_rows(const Call& call, Tensor& out) {
  const Table table = FERRY_TRY(table_of(call, out));
  Dims sizes = table.indices->sizes;
  if (sizes.rank() == kMaxRank) return bad_input("the result has too many dimensions");
  sizes.push_back(table.columns);
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  const int64_t piece = std::max<int64_t>(1, (int64_t{1} << 14) / table.columns);
  for_pieces(call.pool, table.indices->numel, piece, [&](int64_t begin, int64_t end) {
    const bool direct = out.dtype == DType::kF32;
    const Scratch scratch(direct ? 0 : static_cast<size_t>(table.columns));
    for (int64_t i = begin; i < end; ++i) {
      float* row = direct ? out.as<float>() + i * table.columns : scratch.data();
      read_row(table, index_at(*table.indices, i), row);
      if (direct) continue;
      store(out.dtype, row, out.data + i * table.columns * out.element_bytes(), table.columns);
    }
  });
  return {};
}

}  // namespace

Status embedding_codes(const Call& call) {
  Tensor& out = tensor(call, 6);
  if (!out.widened) FERRY_RETURN_IF_ERROR(require_same_dtype(tensor(call, 1), out));
  return read_rows(call, out);
}

Status embedding_codes_dtype(const Call& call) {
  const std::optional<int64_t> dtype = optional_int(call, 6);
  Tensor& out = tensor(call, 7);
  if (!out.widened && dtype && *dtype != dtype_info(out.dtype).executorch) {
    return bad_input(fmt::format("{} is not of the scalar type of the result", describe(out)));
  }
  return read_rows(call, out);
}

}  // namespace ferry::kernels
