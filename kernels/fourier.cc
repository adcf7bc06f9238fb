// Discrete Fourier transforms of real numbers, and what else programs do with complex numbers.
// Transforms are computed in f64.
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

using Complex = std::complex<double>;

// Transforms of one length: e^(-2 pi i / n) to each power, and the factors of n.
class Transform {
 public:
  explicit Transform(int64_t n) : n_(n), work_(static_cast<size_t>(n)) {
    for (int64_t k = 0; k < n; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
      roots_.emplace_back(std::cos(angle), -std::sin(angle));
    }
  }

  // Replaces the n values by their transform.
  void run(std::vector<Complex>& values) {
    split(values.data(), work_.data(), n_, 1);
    values.swap(work_);
  }

 private:
  static int64_t least_factor(int64_t n) {
    for (int64_t f = 2; f * f <= n; ++f) {
      if (n % f == 0) return f;
    }
    return n;
  }

  // Writes the transform of the n values in[0], in[step], ... to out.
  void split(const Complex* in, Complex* out, int64_t n, int64_t step) {
    if (n == 1) {
      *out = *in;
      return;
    }
    const int64_t factor = least_factor(n), part = n / factor;
    for (int64_t i = 0; i < factor; ++i) split(in + i * step, out + i * part, part, step * factor);
    std::vector<Complex> terms(static_cast<size_t>(factor));
    for (int64_t k = 0; k < part; ++k) {
      for (int64_t i = 0; i < factor; ++i) {
        terms[static_cast<size_t>(i)] = out[i * part + k] * root(i * k * step);
      }
      for (int64_t j = 0; j < factor; ++j) {
        Complex sum = terms[0];
        for (int64_t i = 1; i < factor; ++i) {
          sum += terms[static_cast<size_t>(i)] * root(i * j * part * step);
        }
        out[j * part + k] = sum;
      }
    }
  }

  Complex root(int64_t power) const { return roots_[static_cast<size_t>(power % n_)]; }

  int64_t n_;
  std::vector<Complex> roots_;
  std::vector<Complex> work_;
};

// The values of a tensor along one dimension.
struct DimLines {
  int64_t count, length, inner;

  DimLines(const Dims& sizes, int dim) : count(1), length(sizes[dim]), inner(1) {
    for (int i = 0; i < sizes.rank(); ++i) {
      if (i != dim) count *= sizes[i];
      if (i > dim) inner *= sizes[i];
    }
  }
  // Returns the first value of a line; the next ones are `inner` apart.
  int64_t begin(int64_t line) const { return line / inner * length * inner + line % inner; }
};

std::complex<float> narrow_pair(Complex value) {
  return {static_cast<float>(value.real()), static_cast<float>(value.imag())};
}

// Calls f(transform, values of one line, number of the line) for the lines of both tensors.
template <class F>
void for_lines(const Call& call, int64_t count, int64_t length, const F& f) {
  for_pieces(call.pool, count, std::max<int64_t>(1, 8192 / length),
             [&](int64_t begin, int64_t end) {
               Transform transform(length);
               std::vector<Complex> values(static_cast<size_t>(length));
               for (int64_t line = begin; line < end; ++line) f(transform, values, line);
             });
}

// Transforms the lines of complex numbers along `dim` in place.
void transform_lines(const Call& call, std::complex<float>* data, const Dims& sizes, int dim,
                     bool inverse) {
  const DimLines lines(sizes, dim);
  for_lines(call, lines.count, lines.length, [&](Transform& t, std::vector<Complex>& v, int64_t i) {
    std::complex<float>* at = data + lines.begin(i);
    for (size_t k = 0; k < v.size(); ++k) {
      const Complex value = at[static_cast<int64_t>(k) * lines.inner];
      v[k] = inverse ? std::conj(value) : value;
    }
    t.run(v);
    for (size_t k = 0; k < v.size(); ++k) {
      at[static_cast<int64_t>(k) * lines.inner] = narrow_pair(inverse ? std::conj(v[k]) : v[k]);
    }
  });
}

// The dimensions that are transformed, each once, the halved one last.
Result<Dims> transformed_dims(const Call& call, const Tensor& self) {
  const Dims dims = FERRY_TRY(int_list(call, 1));
  for (int i = 0; i < dims.rank(); ++i) {
    bool again = false;
    for (int j = 0; j < i; ++j) again = again || dims[j] == dims[i];
    if (dims[i] < 0 || dims[i] >= self.rank() || again) {
      return bad_input(fmt::format("dimension {} cannot be transformed", dims[i]));
    }
  }
  if (dims.empty()) return bad_input("no dimension is transformed");
  return dims;
}

// 0 leaves sums as they are, 1 divides by the root of their number, 2 by their number.
Result<double> fourier_scale(int64_t normalization, const Dims& sizes, const Dims& dims) {
  double count = 1;
  for (int64_t dim : dims) count *= static_cast<double>(sizes[static_cast<int>(dim)]);
  if (normalization == 0) return 1.0;
  if (normalization == 1) return 1 / std::sqrt(count);
  if (normalization == 2) return 1 / count;
  return bad_input(fmt::format("normalization {}", normalization));
}

}  // namespace

Status fourier_of_real(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 4);
  FERRY_RETURN_IF_ERROR(require_dtype(self, DType::kF32));
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kC64));
  const Dims dims = FERRY_TRY(transformed_dims(call, self));
  const double scale = FERRY_TRY(fourier_scale(integer(call, 2), self.sizes, dims));
  if (!boolean(call, 3)) return bad_input("only the half of a spectrum is computed");
  const int halved = static_cast<int>(dims.back());
  Dims sizes = self.sizes;
  sizes[halved] = self.size(halved) / 2 + 1;
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (self.numel == 0) {
    return out.numel == 0 ? Status() : bad_input(fmt::format("{} is empty", describe(self)));
  }
  const DimLines from(self.sizes, halved), to(sizes, halved);
  for_lines(call, from.count, from.length, [&](Transform& t, std::vector<Complex>& v, int64_t i) {
    const float* in = self.as<float>() + from.begin(i);
    auto* result = out.as<std::complex<float>>() + to.begin(i);
    for (size_t k = 0; k < v.size(); ++k) v[k] = in[static_cast<int64_t>(k) * from.inner];
    t.run(v);
    for (int64_t k = 0; k < to.length; ++k) {
      result[k * to.inner] = narrow_pair(v[static_cast<size_t>(k)] * scale);
    }
  });
  for (int i = 0; i + 1 < dims.rank(); ++i) {
    transform_lines(call, out.as<std::complex<float>>(), sizes, static_cast<int>(dims[i]), false);
  }
  return {};
}

// The input is the half of a spectrum whose other half has the conjugate numbers.
Status real_of_fourier(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 4);
  FERRY_RETURN_IF_ERROR(require_dtype(self, DType::kC64));
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  const Dims dims = FERRY_TRY(transformed_dims(call, self));
  const int halved = static_cast<int>(dims.back());
  const int64_t length = integer(call, 3);
  if (length < 1 || length / 2 + 1 != self.size(halved)) {
    return bad_input(fmt::format("{} has no half of {} values", describe(self), length));
  }
  Dims sizes = self.sizes;
  sizes[halved] = length;
  const double scale = FERRY_TRY(fourier_scale(integer(call, 2), sizes, dims));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  const auto* data = self.as<std::complex<float>>();
  std::vector<std::complex<float>> half(data, data + self.numel);
  for (int i = 0; i + 1 < dims.rank(); ++i) {
    transform_lines(call, half.data(), self.sizes, static_cast<int>(dims[i]), true);
  }
  const DimLines from(self.sizes, halved), to(sizes, halved);
  for_lines(call, to.count, length, [&](Transform& t, std::vector<Complex>& v, int64_t i) {
    const std::complex<float>* in = half.data() + from.begin(i);
    // The transform of conjugate numbers is the conjugate of the inverse, which is real.
    for (int64_t k = 0; k < from.length; ++k) {
      const Complex value = in[k * from.inner];
      v[static_cast<size_t>(k)] = std::conj(value);
      if (k > 0) v[static_cast<size_t>(length - k)] = value;
    }
    v[0] = v[0].real();
    if (length % 2 == 0) v[static_cast<size_t>(length / 2)] = in[length / 2 * from.inner].real();
    t.run(v);
    for (int64_t k = 0; k < length; ++k) {
      out.as<float>()[to.begin(i) + k * to.inner] =
          static_cast<float>(v[static_cast<size_t>(k)].real() * scale);
    }
  });
  return {};
}

Status view_as_real(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 1);
  FERRY_RETURN_IF_ERROR(require_dtype(self, DType::kC64));
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  if (self.rank() == kMaxRank) return bad_input("too many dimensions");
  Dims sizes = self.sizes;
  sizes.push_back(2);
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  std::copy_n(self.as<float>(), out.numel, out.as<float>());
  return {};
}

Status complex_magnitude(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 1);
  FERRY_RETURN_IF_ERROR(require_dtype(self, DType::kC64));
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  const auto* values = self.as<std::complex<float>>();
  for (int64_t i = 0; i < self.numel; ++i) out.as<float>()[i] = std::abs(values[i]);
  return {};
}

}  // namespace ferry::kernels
