#include "kernels/kernel.h"

#include <cmath>

#include "core/dtype.h"

namespace ferry::kernels {
namespace {

std::string text(const Dims& sizes) { return to_string(Shape(sizes.begin(), sizes.end())); }

}  // namespace

Result<Dims> int_list(const Call& call, size_t i) {
  const std::span<Value* const> items = list(call, i);
  if (items.size() > kMaxRank) {
    return bad_input(fmt::format("a list of {} sizes is longer than {}", items.size(), kMaxRank));
  }
  Dims dims;
  for (const Value* item : items) dims.push_back(item->integer);
  return dims;
}

Status resize(Tensor& out, const Dims& sizes) {
  if (out.sizes == sizes) return {};
  const auto refuse = [&](std::string_view why) {
    return bad_input(fmt::format("{} {} {}", describe(out), why, text(sizes)));
  };
  if (!out.dynamic) return refuse("cannot take the result's shape");
  if (out.rank() != sizes.rank()) return refuse("has another rank than the result's");
  const std::optional<int64_t> count = checked_numel(sizes.span());
  const std::optional<int64_t> bytes =
      count ? checked_mul(*count, out.element_bytes()) : std::nullopt;
  if (!bytes || static_cast<uint64_t>(*bytes) > out.capacity) {
    return refuse("has too little memory for the result's");
  }
  out.sizes = sizes;
  out.numel = *count;
  return {};
}

Result<int> wrap_dim(int64_t dim, int rank) {
  const int64_t limit = std::max(rank, 1);
  if (dim < -limit || dim >= limit) {
    return bad_input(fmt::format("dimension {} is outside of rank {}", dim, rank));
  }
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

Result<Range> slice_range(int64_t size, std::optional<int64_t> start, std::optional<int64_t> end,
                          int64_t step) {
  if (step < 1) return bad_input(fmt::format("a slice has step {}", step));
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t first = place(start.value_or(0));
  const int64_t last = std::max(first, place(end.value_or(size)));
  const int64_t span = last - first;
  return Range{first, span / step + (span % step != 0 ? 1 : 0), step};
}

Result<Dims> broadcast(const Dims& a, const Dims& b) {
  if (a == b) return a;
  Dims out = a.rank() >= b.rank() ? a : b;
  const Dims& other = a.rank() >= b.rank() ? b : a;
  const int shift = out.rank() - other.rank();
  for (int i = 0; i < other.rank(); ++i) {
    if (out[shift + i] == 1) {
      out[shift + i] = other[i];
    } else if (other[i] != 1 && other[i] != out[shift + i]) {
      return bad_input(fmt::format("shapes {} and {} cannot be broadcast", text(a), text(b)));
    }
  }
  return out;
}

std::string describe(const Tensor& tensor) {
  return fmt::format("value {} ({}{})", tensor.id, dtype_name(tensor.dtype), text(tensor.sizes));
}

Status require_dtype(const Tensor& tensor, DType dtype) {
  if (tensor.dtype == dtype) return {};
  return bad_input(fmt::format("{} must be {}", describe(tensor), dtype_name(dtype)));
}

Status require_same_dtype(const Tensor& a, const Tensor& b) {
  if (a.dtype == b.dtype) return {};
  return bad_input(fmt::format("{} and {} differ in dtype", describe(a), describe(b)));
}

Status require_rank(const Tensor& tensor, int rank) {
  if (tensor.rank() == rank) return {};
  return bad_input(fmt::format("{} must have rank {}", describe(tensor), rank));
}

Status require_sizes(const Tensor& tensor, const Dims& sizes) {
  if (tensor.sizes == sizes) return {};
  return bad_input(fmt::format("{} must have shape {}", describe(tensor), text(sizes)));
}

Status require_indices(const Tensor& indices, int64_t rows) {
  if (indices.dtype != DType::kI64 && indices.dtype != DType::kI32) {
    return bad_input(fmt::format("{} must be i64 or i32 to be an index", describe(indices)));
  }
  for (int64_t i = 0; i < indices.numel; ++i) {
    const int64_t at = index_at(indices, i);
    if (at < 0 || at >= rows) {
      return bad_input(fmt::format("index {} in value {} is outside of a table of {} rows", at,
                                   indices.id, rows));
    }
  }
  return {};
}

Status set_number(Value& out, Number number) {
  switch (out.kind) {
    case Value::Kind::kDouble:
      out.real = number.real;
      return {};
    case Value::Kind::kInt:
      if (number.is_real()) break;
      out.integer = number.integer;
      return {};
    case Value::Kind::kBool:
      if (number.kind != Number::Kind::kBool) break;
      out.boolean = number.integer != 0;
      return {};
    default:
      break;
  }
  return bad_input(fmt::format("value {} cannot hold the result {}", out.id, number.real));
}

}  // namespace ferry::kernels
