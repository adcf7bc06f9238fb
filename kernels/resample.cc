// Resizing of images [batch, channels, height, width], and sampling at given places.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

// How one dimension is resized.
struct ResizeAxis {
  int64_t in, out;
  double factor;  // the scale that the program states, or 0
};

Status require_batch_of_images(const Tensor& input, const Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(input, out));
  if (input.rank() == 4 && input.numel > 0) return {};
  return bad_input(fmt::format("{} is no batch of images", describe(input)));
}

// Sizes are in one argument, or factors in another; the other one is None.
Result<ResizeAxis> resize_axis(const Call& call, const Tensor& input, size_t sizes, size_t factors,
                               size_t i) {
  ResizeAxis axis{input.size(2 + static_cast<int>(i)), 0, 0};
  const bool by_size = call.args[sizes]->kind != Value::Kind::kNone;
  const bool by_factor = call.args[factors]->kind != Value::Kind::kNone;
  const auto wrong = [] { return bad_input("neither a height and width nor two factors"); };
  if (by_size == by_factor) return wrong();
  const std::span<Value* const> items = list(call, by_size ? sizes : factors);
  if (items.size() != 2) return wrong();
  if (by_size) {
    axis.out = items[i]->integer;
  } else {
    axis.factor = items[i]->number().real;
    const double size = static_cast<double>(axis.in) * axis.factor;
    if (!(size >= 1 && size <= INT32_MAX)) return bad_input("a factor that fits no image");
    axis.out = static_cast<int64_t>(size);
  }
  if (axis.out < 1 || axis.out > INT32_MAX) return bad_input("an image without a size");
  return axis;
}

// Input pixels from one output pixel to the next, in f32 as torch has them.
float step_of(const ResizeAxis& axis, bool align_corners) {
  if (align_corners) {
    return axis.out > 1 ? static_cast<float>(axis.in - 1) / static_cast<float>(axis.out - 1) : 0;
  }
  if (axis.factor > 0) return static_cast<float>(1.0 / axis.factor);
  return static_cast<float>(axis.in) / static_cast<float>(axis.out);
}

// The inputs of one output position and their weights.
struct Tap {
  int64_t first = 0;
  std::vector<double> weights;
};

std::vector<Tap> nearest_taps(const ResizeAxis& axis) {
  const float step = step_of(axis, false);
  std::vector<Tap> taps(static_cast<size_t>(axis.out));
  for (int64_t o = 0; o < axis.out; ++o) {
    const auto at = static_cast<int64_t>(static_cast<float>(o) * step);
    taps[static_cast<size_t>(o)] = {std::min(at, axis.in - 1), {1}};
  }
  return taps;
}

std::vector<Tap> linear_taps(const ResizeAxis& axis, bool align_corners) {
  const float step = step_of(axis, align_corners);
  std::vector<Tap> taps(static_cast<size_t>(axis.out));
  for (int64_t o = 0; o < axis.out; ++o) {
    const float at = align_corners ? step * static_cast<float>(o)
                                   : std::max(step * (static_cast<float>(o) + 0.5F) - 0.5F, 0.0F);
    const int64_t low = std::min(static_cast<int64_t>(at), axis.in - 1);
    const float share = std::min(at - static_cast<float>(low), 1.0F);
    Tap& tap = taps[static_cast<size_t>(o)];
    tap.first = low;
    tap.weights = {static_cast<double>(1.0F - share)};
    if (low + 1 < axis.in) {
      tap.weights.push_back(static_cast<double>(share));
    } else {
      tap.weights[0] += static_cast<double>(share);
    }
  }
  return taps;
}

// A triangle as wide as two output pixels, or two input pixels where the image grows.
std::vector<Tap> smooth_taps(const ResizeAxis& axis, bool align_corners) {
  const double step = static_cast<double>(step_of(axis, align_corners));
  const double width = std::max(step, 1.0);
  std::vector<Tap> taps(static_cast<size_t>(axis.out));
  for (int64_t o = 0; o < axis.out; ++o) {
    Tap& tap = taps[static_cast<size_t>(o)];
    const double center = step * (static_cast<double>(o) + 0.5);
    tap.first = std::max<int64_t>(static_cast<int64_t>(center - width + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + width + 0.5), axis.in);
    double sum = 0;
    for (int64_t i = tap.first; i < end; ++i) {
      const double distance = std::abs((static_cast<double>(i) - center + 0.5) / width);
      tap.weights.push_back(std::max(1 - distance, 0.0));
      sum += tap.weights.back();
    }
    for (double& weight : tap.weights) weight /= sum == 0 ? 1 : sum;
  }
  return taps;
}

// Every plane is resized along x, then along y.
template <class C>
void resize_planes(const Call& call, const Tensor& input, const std::vector<Tap>& ys,
                   const std::vector<Tap>& xs, Tensor& out) {
  const InputValues<C> from(input);
  OutputValues<C> to(out);
  const int64_t width = input.size(3), columns = std::ssize(xs), rows = std::ssize(ys);
  const int64_t in_plane = input.size(2) * width, out_plane = rows * columns;
  const auto along_x = [&](const C* row, const Tap& x) {
    if (x.weights.size() == 1 && x.weights[0] == 1) return row[x.first];
    C sum = 0;
    for (size_t j = 0; j < x.weights.size(); ++j) {
      sum += static_cast<C>(x.weights[j]) * row[x.first + static_cast<int64_t>(j)];
    }
    return sum;
  };
  for_pieces(call.pool, input.numel / in_plane, std::max<int64_t>(1, 8192 / out_plane),
             [&](int64_t begin, int64_t end) {
               for (int64_t o = begin * out_plane; o < end * out_plane; ++o) {
                 const C* plane = from.data() + o / out_plane * in_plane;
                 const Tap& y = ys[static_cast<size_t>(o % out_plane / columns)];
                 const Tap& x = xs[static_cast<size_t>(o % columns)];
                 if (y.weights.size() == 1 && y.weights[0] == 1) {
                   to[o] = along_x(plane + y.first * width, x);
                   continue;
                 }
                 C sum = 0;
                 for (size_t i = 0; i < y.weights.size(); ++i) {
                   const int64_t row = y.first + static_cast<int64_t>(i);
                   sum += static_cast<C>(y.weights[i]) * along_x(plane + row * width, x);
                 }
                 to[o] = sum;
               }
             });
  to.finish();
}

Status resize_by(const Call& call, const Tensor& input, const std::vector<Tap>& ys,
                 const std::vector<Tap>& xs, Tensor& out) {
  dispatch(compute_type(input.dtype),
           [&]<class C>(Tag<C>) { resize_planes<C>(call, input, ys, xs, out); });
  return {};
}

// -- sampling

enum class Border : int { kZeros, kEdge, kMirror };

struct GridOptions {
  bool nearest;
  Border border;
  bool align_corners;
};

// Reflects a coordinate between low / 2 and high / 2.
double mirrored(double at, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return 0;
  const double low = static_cast<double>(twice_low) / 2;
  const double span = static_cast<double>(twice_high - twice_low) / 2;
  const double distance = std::abs(at - low);
  const double rest = std::fmod(distance, span);
  const bool odd = static_cast<int64_t>(distance / span) % 2 != 0;
  return odd ? span - rest + low : rest + low;
}

// Converts a coordinate in [-1, 1] to one in pixels.
double pixel_of(double at, int64_t size, const GridOptions& options) {
  const auto n = static_cast<double>(size);
  double pixel = options.align_corners ? (at + 1) / 2 * (n - 1) : ((at + 1) * n - 1) / 2;
  if (options.border == Border::kMirror) {
    pixel = options.align_corners ? mirrored(pixel, 0, 2 * (size - 1))
                                  : mirrored(pixel, -1, 2 * size - 1);
  }
  if (options.border != Border::kZeros) pixel = std::clamp(pixel, 0.0, n - 1);
  // A place far outside has no pixels in any case, and must fit an integer.
  return std::isfinite(pixel) ? std::clamp(pixel, -1e9, 1e9) : -1e9;
}

template <class C>
void sample_grid(const Call& call, const Tensor& input, const Tensor& grid,
                 const GridOptions& options, Tensor& out) {
  const InputValues<C> from(input), places(grid);
  OutputValues<C> to(out);
  const int64_t channels = input.size(1), height = input.size(2), width = input.size(3);
  const int64_t plane = grid.size(1) * grid.size(2);
  const auto pixel = [&](const C* image, double y, double x) {
    const bool inside =
        y >= 0 && x >= 0 && y < static_cast<double>(height) && x < static_cast<double>(width);
    return inside ? image[static_cast<int64_t>(y) * width + static_cast<int64_t>(x)] : C{0};
  };
  const auto sample = [&](const C* image, double y, double x) {
    if (options.nearest) return pixel(image, std::nearbyint(y), std::nearbyint(x));
    const double top = std::floor(y), left = std::floor(x);
    const C down = static_cast<C>(y - top), right = static_cast<C>(x - left);
    return pixel(image, top, left) * (1 - down) * (1 - right) +
           pixel(image, top, left + 1) * (1 - down) * right +
           pixel(image, top + 1, left) * down * (1 - right) +
           pixel(image, top + 1, left + 1) * down * right;
  };
  for_pieces(call.pool, input.size(0) * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const C* image = from.data() + p * height * width;
      const C* place = places.data() + p / channels * plane * 2;
      for (int64_t o = 0; o < plane; ++o) {
        const double x = pixel_of(static_cast<double>(place[2 * o]), width, options);
        const double y = pixel_of(static_cast<double>(place[2 * o + 1]), height, options);
        to[p * plane + o] = sample(image, y, x);
      }
    }
  });
  to.finish();
}

}  // namespace

Status upsample_nearest(const Call& call) {
  const Tensor& input = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_batch_of_images(input, out));
  const ResizeAxis y = FERRY_TRY(resize_axis(call, input, 1, 2, 0));
  const ResizeAxis x = FERRY_TRY(resize_axis(call, input, 1, 2, 1));
  FERRY_RETURN_IF_ERROR(resize(out, {input.size(0), input.size(1), y.out, x.out}));
  return resize_by(call, input, nearest_taps(y), nearest_taps(x), out);
}

Status upsample_bilinear(const Call& call) {
  const Tensor& input = tensor(call, 0);
  Tensor& out = tensor(call, 4);
  FERRY_RETURN_IF_ERROR(require_batch_of_images(input, out));
  if (!is_floating(input.dtype)) return bad_input("bilinear resizing of integers");
  const ResizeAxis y = FERRY_TRY(resize_axis(call, input, 1, 3, 0));
  const ResizeAxis x = FERRY_TRY(resize_axis(call, input, 1, 3, 1));
  FERRY_RETURN_IF_ERROR(resize(out, {input.size(0), input.size(1), y.out, x.out}));
  return resize_by(call, input, linear_taps(y, boolean(call, 2)), linear_taps(x, boolean(call, 2)),
                   out);
}

Status upsample_smooth(const Call& call) {
  const Tensor& input = tensor(call, 0);
  Tensor& out = tensor(call, 5);
  FERRY_RETURN_IF_ERROR(require_batch_of_images(input, out));
  if (!is_floating(input.dtype)) return bad_input("bilinear resizing of integers");
  const Dims size = FERRY_TRY(int_list(call, 1));
  if (size.rank() != 2 || std::min(size[0], size[1]) < 1 ||
      std::max(size[0], size[1]) > INT32_MAX) {
    return bad_input("the size of the output is no height and width");
  }
  ResizeAxis axes[2];
  for (int i = 0; i < 2; ++i) {
    const std::optional<Number> factor = optional_number(call, 3 + static_cast<size_t>(i));
    axes[i] = {input.size(2 + i), size[i], factor ? factor->real : 0};
    // With such a factor a position has few inputs.
    const double wide = static_cast<double>(axes[i].in) * axes[i].factor;
    if (factor &&
        !(wide > static_cast<double>(size[i]) - 0.5 && wide < static_cast<double>(size[i]) + 1)) {
      return bad_input(
          fmt::format("a factor of {} from {} to {}", factor->real, axes[i].in, size[i]));
    }
  }
  FERRY_RETURN_IF_ERROR(resize(out, {input.size(0), input.size(1), size[0], size[1]}));
  return resize_by(call, input, smooth_taps(axes[0], boolean(call, 2)),
                   smooth_taps(axes[1], boolean(call, 2)), out);
}

Status grid_sample(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor& grid = tensor(call, 1);
  Tensor& out = tensor(call, 5);
  FERRY_RETURN_IF_ERROR(require_batch_of_images(input, out));
  FERRY_RETURN_IF_ERROR(require_same_dtype(input, grid));
  if (grid.rank() != 4 || grid.size(0) != input.size(0) || grid.size(3) != 2 ||
      !is_floating(input.dtype)) {
    return bad_input(fmt::format("{} are no places in {}", describe(grid), describe(input)));
  }
  const int64_t mode = integer(call, 2), border = integer(call, 3);
  if (mode != 0 && mode != 1) {
    return fail(ErrorCode::kUnsupported, fmt::format("sampling with interpolation {}", mode));
  }
  if (border < 0 || border > 2) return bad_input(fmt::format("a padding mode of {}", border));
  FERRY_RETURN_IF_ERROR(resize(out, {input.size(0), input.size(1), grid.size(1), grid.size(2)}));
  const GridOptions options{mode == 1, static_cast<Border>(border), boolean(call, 4)};
  dispatch(compute_type(input.dtype), [&]<class C>(Tag<C>) {
    if constexpr (std::is_floating_point_v<C>) sample_grid<C>(call, input, grid, options, out);
  });
  return {};
}

}  // namespace ferry::kernels
