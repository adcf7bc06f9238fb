// Pooling of images [..., channels, height, width] of rank 3 or 4.
#include <algorithm>
#include <limits>

#include "kernels/images.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

struct PoolAxis : Window {
  // The positions of window o without dilation, padding included.
  int64_t begin(int64_t o) const { return position(o, 0); }
  int64_t end(int64_t o) const { return std::min(begin(o) + kernel, in + before); }
};

// Returns value i of a list of one or two; a list of one serves both dimensions.
Result<int64_t> pool_number(const Call& call, size_t argument, int i, int64_t least) {
  const Dims values = FERRY_TRY(int_list(call, argument));
  if (values.empty() || values.rank() > 2) {
    return bad_input(fmt::format("{} numbers for two dimensions", values.rank()));
  }
  const int64_t value = values[std::min(i, values.rank() - 1)];
  if (value >= least && value <= INT32_MAX) return value;
  return bad_input(fmt::format("a kernel, stride, padding or dilation of {}", value));
}

// The arguments from the second on are kernel, stride, padding and, for `dilated`, dilation.
Result<PoolAxis> pool_axis(const Call& call, const Tensor& self, int i, bool dilated,
                           bool ceil_mode) {
  PoolAxis axis{};
  axis.in = self.size(self.rank() - 2 + i);
  axis.kernel = FERRY_TRY(pool_number(call, 1, i, 1));
  axis.stride = list(call, 2).empty() ? axis.kernel : FERRY_TRY(pool_number(call, 2, i, 1));
  axis.before = FERRY_TRY(pool_number(call, 3, i, 0));
  axis.dilation = dilated ? FERRY_TRY(pool_number(call, 4, i, 1)) : 1;
  if (axis.before > axis.kernel / 2) {
    return bad_input(
        fmt::format("padding {} is more than half of kernel {}", axis.before, axis.kernel));
  }
  const int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
  const int64_t span = axis.in + 2 * axis.before - reach + (ceil_mode ? axis.stride - 1 : 0);
  if (span < 0) return bad_input(fmt::format("a window is larger than {}", describe(self)));
  axis.out = span / axis.stride + 1;
  // A window must begin inside of the image or the padding before it.
  if (ceil_mode && (axis.out - 1) * axis.stride >= axis.in + axis.before) --axis.out;
  return axis;
}

Status require_image(const Tensor& self) {
  if ((self.rank() == 3 || self.rank() == 4) && self.numel > 0) return {};
  return bad_input(fmt::format("{} is no image", describe(self)));
}

Dims with_size(const Tensor& self, int64_t height, int64_t width) {
  Dims sizes = self.sizes;
  sizes[self.rank() - 2] = height;
  sizes[self.rank() - 1] = width;
  return sizes;
}

// Calls f(plane of the input, plane of the output, first index of the output) for every channel.
template <class C, class F>
void for_planes(const Call& call, const Tensor& self, Tensor& out, const F& f) {
  const InputValues<C> from(self);
  OutputValues<C> to(out);
  const int rank = self.rank();
  const int64_t in_plane = self.size(rank - 2) * self.size(rank - 1);
  const int64_t out_plane = out.size(rank - 2) * out.size(rank - 1);
  for_pieces(call.pool, self.numel / in_plane, std::max<int64_t>(1, 16384 / in_plane),
             [&](int64_t begin, int64_t end) {
               for (int64_t p = begin; p < end; ++p) {
                 f(from.data() + p * in_plane, to.data() + p * out_plane, p * out_plane);
               }
             });
  to.finish();
}

// Adds the values of rows [top, bottom) and columns [left, right) in their order.
template <class C>
C sum_area(const C* plane, int64_t width, int64_t top, int64_t bottom, int64_t left,
           int64_t right) {
  C sum = 0;
  for (int64_t y = top; y < bottom; ++y) {
    for (int64_t x = left; x < right; ++x) sum += plane[y * width + x];
  }
  return sum;
}

template <class C>
void average_planes(const Call& call, const Tensor& self, const PoolAxis& y, const PoolAxis& x,
                    Tensor& out) {
  const bool count_padding = boolean(call, 5);
  const std::optional<int64_t> divisor = optional_int(call, 6);
  for_planes<C>(call, self, out, [&](const C* from, C* to, int64_t) {
    for (int64_t oy = 0; oy < y.out; ++oy) {
      const int64_t top = std::max<int64_t>(y.begin(oy), 0), bottom = std::min(y.end(oy), y.in);
      for (int64_t ox = 0; ox < x.out; ++ox) {
        const int64_t left = std::max<int64_t>(x.begin(ox), 0), right = std::min(x.end(ox), x.in);
        const int64_t area = count_padding ? (y.end(oy) - y.begin(oy)) * (x.end(ox) - x.begin(ox))
                                           : (bottom - top) * (right - left);
        C& result = to[oy * x.out + ox];
        result = 0;
        if (top >= bottom || left >= right) continue;
        result =
            sum_area(from, x.in, top, bottom, left, right) / static_cast<C>(divisor.value_or(area));
      }
    }
  });
}

// The first of the largest values, or a NaN; -1 if there is none.
template <class C>
int64_t largest_in(const C* from, const PoolAxis& y, const PoolAxis& x, int64_t oy, int64_t ox) {
  int64_t best = -1;
  const Window::Range ys = y.inside(oy), xs = x.inside(ox);
  for (int64_t i = ys.begin; i < ys.end; ++i) {
    for (int64_t j = xs.begin; j < xs.end; ++j) {
      const int64_t at = y.position(oy, i) * x.in + x.position(ox, j);
      if (best < 0 || from[at] > from[best] || from[at] != from[at]) best = at;
    }
  }
  return best;
}

template <class C>
void largest_of_planes(const Call& call, const Tensor& self, const PoolAxis& y, const PoolAxis& x,
                       Tensor& out, Tensor& indices) {
  int64_t* places = indices.as<int64_t>();
  for_planes<C>(call, self, out, [&](const C* from, C* to, int64_t first) {
    for (int64_t o = 0; o < y.out * x.out; ++o) {
      const int64_t best = largest_in(from, y, x, o / x.out, o % x.out);
      to[o] = best < 0 ? std::numeric_limits<C>::lowest() : from[best];
      places[first + o] = std::max<int64_t>(best, 0);
    }
  });
}

template <class C>
void adapt_planes(const Call& call, const Tensor& self, Tensor& out) {
  const int rank = self.rank();
  const int64_t height = self.size(rank - 2), width = self.size(rank - 1);
  const int64_t rows = out.size(rank - 2), columns = out.size(rank - 1);
  // Output o averages [o * in / out, (o + 1) * in / out), rounded outwards.
  const auto begin = [](int64_t o, int64_t in, int64_t n) { return o * in / n; };
  const auto end = [](int64_t o, int64_t in, int64_t n) { return ((o + 1) * in + n - 1) / n; };
  for_planes<C>(call, self, out, [&](const C* from, C* to, int64_t) {
    for (int64_t oy = 0; oy < rows; ++oy) {
      const int64_t top = begin(oy, height, rows), bottom = end(oy, height, rows);
      for (int64_t ox = 0; ox < columns; ++ox) {
        const int64_t left = begin(ox, width, columns), right = end(ox, width, columns);
        to[oy * columns + ox] = sum_area(from, width, top, bottom, left, right) /
                                static_cast<C>((bottom - top) * (right - left));
      }
    }
  });
}

}  // namespace

Status avg_pool(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 7);
  FERRY_RETURN_IF_ERROR(require_image(self));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  if (optional_int(call, 6) == 0) return bad_input("a divisor of 0");
  const PoolAxis y = FERRY_TRY(pool_axis(call, self, 0, false, boolean(call, 4)));
  const PoolAxis x = FERRY_TRY(pool_axis(call, self, 1, false, boolean(call, 4)));
  FERRY_RETURN_IF_ERROR(resize(out, with_size(self, y.out, x.out)));
  dispatch(compute_type(self.dtype),
           [&]<class C>(Tag<C>) { average_planes<C>(call, self, y, x, out); });
  return {};
}

Status max_pool(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 6);
  Tensor& indices = tensor(call, 7);
  FERRY_RETURN_IF_ERROR(require_image(self));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(require_dtype(indices, DType::kI64));
  const PoolAxis y = FERRY_TRY(pool_axis(call, self, 0, true, boolean(call, 5)));
  const PoolAxis x = FERRY_TRY(pool_axis(call, self, 1, true, boolean(call, 5)));
  FERRY_RETURN_IF_ERROR(resize(out, with_size(self, y.out, x.out)));
  FERRY_RETURN_IF_ERROR(resize(indices, out.sizes));
  dispatch(compute_type(self.dtype),
           [&]<class C>(Tag<C>) { largest_of_planes<C>(call, self, y, x, out, indices); });
  return {};
}

Status adaptive_avg_pool(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_image(self));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const Dims size = FERRY_TRY(int_list(call, 1));
  if (size.rank() != 2 || std::min(size[0], size[1]) < 1 ||
      std::max(size[0], size[1]) > INT32_MAX || self.numel > INT32_MAX) {
    return bad_input("the size of the output is no height and width");
  }
  FERRY_RETURN_IF_ERROR(resize(out, with_size(self, size[0], size[1])));
  dispatch(compute_type(self.dtype), [&]<class C>(Tag<C>) { adapt_planes<C>(call, self, out); });
  return {};
}

}  // namespace ferry::kernels
