// Operators that take every element of the result from a place of the input that a rule gives:
// mirrored, replicated, rolled, flipped, shuffled.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

// The input positions of every output position of a dimension.
using Places = std::vector<int64_t>;

// Copies out[i, j, ...] = self[places[0][i], places[1][j], ...]; a dimension without places keeps
// its own.
void copy_places(const Call& call, const Tensor& self, std::span<const Places> places,
                 Tensor& out) {
  const int rank = self.rank();
  const Dims strides = contiguous_strides(self.sizes);
  const int64_t bytes = out.element_bytes();
  if (out.numel == 0) return;
  const int64_t row = rank == 0 ? 1 : out.size(rank - 1);
  const Places* last = rank == 0 || places.back().empty() ? nullptr : &places.back();
  for_pieces(call.pool, out.numel / row, std::max<int64_t>(1, 16384 / row),
             [&](int64_t begin, int64_t end) {
               for (int64_t r = begin; r < end; ++r) {
                 int64_t from = 0, rest = r;
                 for (int dim = rank - 2; dim >= 0; --dim) {
                   const int64_t at = rest % out.size(dim);
                   rest /= out.size(dim);
                   const Places& of = places[static_cast<size_t>(dim)];
                   from += (of.empty() ? at : of[static_cast<size_t>(at)]) * strides[dim];
                 }
                 std::byte* to = out.data + r * row * bytes;
                 if (last == nullptr) {
                   std::memcpy(to, self.data + from * bytes, static_cast<size_t>(row * bytes));
                   continue;
                 }
                 for (int64_t i = 0; i < row; ++i) {
                   std::memcpy(to + i * bytes,
                               self.data + (from + (*last)[static_cast<size_t>(i)]) * bytes,
                               static_cast<size_t>(bytes));
                 }
               }
             });
}

int64_t modulo(int64_t a, int64_t n) { return (a % n + n) % n; }

// Copies elements of `self` with strides in the dimensions of `sizes`, from element `skip` on.
Status copy_strided(const Call& call, const Tensor& self, int64_t skip, const Dims& sizes,
                    const Dims& strides, Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  strided_copy(call.pool, sizes, out.element_bytes(), strided(self, skip, strides), strided(out));
  return {};
}

}  // namespace

// self, widths -> out; variant 0 mirrors without the edge, 1 repeats the edge
Status pad_from_self(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  const Dims widths = FERRY_TRY(int_list(call, 1));
  const int padded = widths.rank() / 2;
  if (widths.empty() || widths.rank() % 2 != 0 || padded > self.rank() || self.numel == 0) {
    return bad_input(fmt::format("{} pad widths do not fit {}", widths.rank(), describe(self)));
  }
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  std::vector<Places> places(static_cast<size_t>(self.rank()));
  Dims sizes = self.sizes;
  for (int i = 0; i < padded; ++i) {
    const int dim = self.rank() - 1 - i;
    const int64_t before = widths[2 * i], after = widths[2 * i + 1], size = self.size(dim);
    const int64_t most = call.variant == 0 ? size - 1 : INT32_MAX;
    if (std::min(before, after) < 0 || std::max(before, after) > most) {
      return bad_input(
          fmt::format("pad widths {} and {} for a dimension of {}", before, after, size));
    }
    sizes[dim] = before + size + after;
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  for (int i = 0; i < padded; ++i) {
    const int dim = self.rank() - 1 - i;
    const int64_t last = self.size(dim) - 1;
    for (int64_t o = -widths[2 * i]; o <= last + widths[2 * i + 1]; ++o) {
      const int64_t mirrored = o < 0 ? -o : o > last ? 2 * last - o : o;
      places[static_cast<size_t>(dim)].push_back(
          call.variant == 0 ? mirrored : std::clamp<int64_t>(o, 0, last));
    }
  }
  copy_places(call, self, places, out);
  return {};
}

Status flip(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  std::vector<Places> places(static_cast<size_t>(self.rank()));
  for (int64_t dim : FERRY_TRY(int_list(call, 1))) {
    const int d = FERRY_TRY(wrap_dim(dim, self.rank()));
    if (d >= self.rank()) continue;  // a scalar
    Places& of = places[static_cast<size_t>(d)];
    if (!of.empty()) return bad_input(fmt::format("dimension {} appears twice", dim));
    for (int64_t at = self.size(d); at-- > 0;) of.push_back(at);
  }
  copy_places(call, self, places, out);
  return {};
}

Status roll(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  const Dims shifts = FERRY_TRY(int_list(call, 1)), dims = FERRY_TRY(int_list(call, 2));
  if (out.numel == 0) return {};
  if (dims.empty() && shifts.rank() == 1) {  // the tensor as one row
    const int64_t bytes = self.element_bytes(), split = modulo(shifts[0], self.numel);
    std::memcpy(out.data + split * bytes, self.data,
                static_cast<size_t>((self.numel - split) * bytes));
    std::memcpy(out.data, self.data + (self.numel - split) * bytes,
                static_cast<size_t>(split * bytes));
    return {};
  }
  if (shifts.rank() != dims.rank() || self.rank() == 0) {
    return bad_input(fmt::format("{} shifts for {} dimensions", shifts.rank(), dims.rank()));
  }
  std::vector<Places> places(static_cast<size_t>(self.rank()));
  for (int i = 0; i < dims.rank(); ++i) {
    const int d = FERRY_TRY(wrap_dim(dims[i], self.rank()));
    const int64_t size = self.size(d), shift = modulo(shifts[i], size);
    Places& of = places[static_cast<size_t>(d)];
    const Places before = std::move(of);
    of.clear();
    for (int64_t at = 0; at < size; ++at) {
      const int64_t from = modulo(at - shift, size);
      of.push_back(before.empty() ? from : before[static_cast<size_t>(from)]);
    }
  }
  copy_places(call, self, places, out);
  return {};
}

Status tril(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  if (self.rank() < 2) return bad_input(fmt::format("{} is no matrix", describe(self)));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  copy_bytes(self, out);
  const int64_t rows = self.size(self.rank() - 2), columns = self.size(self.rank() - 1);
  const int64_t diagonal = std::clamp<int64_t>(integer(call, 1), -rows - 1, columns);
  const int64_t bytes = out.element_bytes();
  if (out.numel == 0) return {};
  for (int64_t row = 0; row < out.numel / columns; ++row) {
    const int64_t kept = std::clamp<int64_t>(row % rows + diagonal + 1, 0, columns);
    std::memset(out.data + (row * columns + kept) * bytes, 0,
                static_cast<size_t>((columns - kept) * bytes));
  }
  return {};
}

// self [..., c r r, h, w], factor -> out [..., c, h r, w r]; variant 1 is the inverse
Status pixel_shuffle(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  const int64_t r = integer(call, 1);
  const int rank = self.rank();
  const auto wrong = [&] {
    return bad_input(fmt::format("{} cannot be shuffled by {}", describe(self), r));
  };
  if (rank < 3 || rank > kMaxRank - 2 || self.numel > INT32_MAX || r < 1 || r > (1 << 15))
    return wrong();
  const bool inverse = call.variant == 1;
  const int64_t c = self.size(rank - 3), h = self.size(rank - 2), w = self.size(rank - 1);
  if (inverse ? h % r != 0 || w % r != 0 : c % (r * r) != 0) return wrong();
  Dims sizes, wide;
  for (int dim = 0; dim < rank - 3; ++dim) sizes.push_back(self.size(dim));
  wide = sizes;
  Dims order;
  for (int dim = 0; dim < rank - 3; ++dim) order.push_back(dim);
  // `wide` are the dimensions of the input, factors apart; `order` has those of the output.
  const Dims parts = inverse ? Dims{c, h / r, r, w / r, r} : Dims{c / (r * r), r, r, h, w};
  const Dims moves = inverse ? Dims{0, 2, 4, 1, 3} : Dims{0, 3, 1, 4, 2};
  const Dims result = inverse ? Dims{c * r * r, h / r, w / r} : Dims{c / (r * r), h * r, w * r};
  for (int64_t part : parts) wide.push_back(part);
  for (int64_t part : moves) order.push_back(rank - 3 + part);
  for (int64_t size : result) sizes.push_back(size);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  const Dims own = contiguous_strides(wide);
  Dims moved, strides;
  for (int64_t dim : order) {
    moved.push_back(wide[static_cast<int>(dim)]);
    strides.push_back(own[static_cast<int>(dim)]);
  }
  strided_copy(call.pool, moved, out.element_bytes(), strided(self, 0, strides),
               {out.data, contiguous_strides(moved)});
  return {};
}

// Tiles go from left to right, and then down.
Status tile_crop(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  const int64_t size = integer(call, 1);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(require_rank(self, 3));
  const int64_t channels = self.size(0), height = self.size(1), width = self.size(2);
  if (size < 1 || height % size != 0 || width % size != 0) {
    return bad_input(fmt::format("{} has no tiles of {} pixels", describe(self), size));
  }
  const int64_t down = height / size, across = width / size;
  FERRY_RETURN_IF_ERROR(resize(out, {down * across, channels, size, size}));
  if (out.numel == 0) return {};
  const Dims parts{down, across, channels, size, size};
  strided_copy(call.pool, parts, out.element_bytes(),
               strided(self, 0, {size * width, size, height * width, width, 1}),
               {out.data, contiguous_strides(parts)});
  return {};
}

Status diagonal_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const int rank = self.rank();
  const int a = FERRY_TRY(wrap_dim(integer(call, 2), rank));
  const int b = FERRY_TRY(wrap_dim(integer(call, 3), rank));
  if (rank < 2 || a == b) return bad_input(fmt::format("{} has no such diagonal", describe(self)));
  const Dims own = contiguous_strides(self.sizes);
  const int64_t offset = std::clamp<int64_t>(integer(call, 1), -self.size(a), self.size(b));
  const int64_t length =
      std::max<int64_t>(0, offset >= 0 ? std::min(self.size(a), self.size(b) - offset)
                                       : std::min(self.size(a) + offset, self.size(b)));
  Dims sizes, strides;
  for (int dim = 0; dim < rank; ++dim) {
    if (dim == a || dim == b) continue;
    sizes.push_back(self.size(dim));
    strides.push_back(own[dim]);
  }
  sizes.push_back(length);
  strides.push_back(own[a] + own[b]);
  const int64_t skip = offset >= 0 ? offset * own[b] : -offset * own[a];
  return copy_strided(call, self, length == 0 ? 0 : skip, sizes, strides, tensor(call, 4));
}

// self, dimension, size, step -> out: windows of a dimension, in a new last one
Status unfold_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const int64_t size = integer(call, 2), step = integer(call, 3);
  if (self.rank() == 0 || self.rank() == kMaxRank) {
    return bad_input(fmt::format("{} has no windows", describe(self)));
  }
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  if (size < 0 || size > self.size(dim) || step < 1) {
    return bad_input(fmt::format("windows of {} at steps of {} in {}", size, step, describe(self)));
  }
  Dims sizes = self.sizes, strides = contiguous_strides(self.sizes);
  sizes[dim] = (self.size(dim) - size) / step + 1;
  sizes.push_back(size);
  strides.push_back(strides[dim]);
  strides[dim] = sizes[dim] == 1 ? strides[dim] : strides[dim] * step;
  return copy_strided(call, self, 0, sizes, strides, tensor(call, 4));
}

// self, size, stride, offset? -> out
Status as_strided(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Dims sizes = FERRY_TRY(int_list(call, 1)), strides = FERRY_TRY(int_list(call, 2));
  const int64_t offset = optional_int(call, 3).value_or(0);
  if (sizes.rank() != strides.rank() || offset < 0) return bad_input("a stride is missing");
  std::optional<int64_t> last = offset;
  bool empty = false;
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    if (sizes[dim] < 0 || strides[dim] < 0) return bad_input("a negative size or stride");
    empty = empty || sizes[dim] == 0;
    if (sizes[dim] < 2 || !last) continue;
    const auto reach = checked_mul(sizes[dim] - 1, strides[dim]);
    last = reach ? checked_add(*last, *reach) : std::nullopt;
  }
  if (!empty && (!last || *last >= self.numel)) {
    return bad_input(fmt::format("elements beyond {}", describe(self)));
  }
  return copy_strided(call, self, empty ? 0 : offset, sizes, strides, tensor(call, 4));
}

// repeats, output_size? -> out: every index as often as its repeats say
Status repeat_interleave(const Call& call) {
  const Tensor& repeats = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_rank(repeats, 1));
  FERRY_RETURN_IF_ERROR(require_same_dtype(repeats, out));
  if (repeats.dtype != DType::kI64 && repeats.dtype != DType::kI32) {
    return bad_input(fmt::format("{} are no counts", describe(repeats)));
  }
  std::optional<int64_t> total = 0;
  for (int64_t i = 0; i < repeats.numel; ++i) {
    const int64_t count = index_at(repeats, i);
    total = count < 0 || !total ? std::nullopt : checked_add(*total, count);
  }
  const std::optional<int64_t> stated = optional_int(call, 1);
  if (!total || (stated && *stated != *total)) return bad_input("repeats with a wrong sum");
  FERRY_RETURN_IF_ERROR(resize(out, {*total}));
  for (int64_t i = 0, at = 0; i < repeats.numel; ++i) {
    for (int64_t n = index_at(repeats, i); n > 0; --n, ++at) {
      store_number(out.dtype, Number::of_int(i), out.data + at * out.element_bytes());
    }
  }
  return {};
}

}  // namespace ferry::kernels
