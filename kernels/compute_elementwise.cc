// Element-wise kernels, casts, sums, softmax and the depthwise convolution.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_elementwise.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// Calls body(tag, i) for whole vectors, then for single lanes, so the arithmetic is the same at
// every i.
template <class Body>
HWY_INLINE void each(size_t n, const Body& body) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(F32(), i);
  for (; i < n; ++i) body(F32x1(), i);
}

struct Add {
  const float *a, *b;
  float* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    hn::StoreU(hn::Add(load_f32(d, a + i), load_f32(d, b + i)), d, out + i);
  }
};

struct Mul {
  const float *a, *b;
  float* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    hn::StoreU(hn::Mul(load_f32(d, a + i), load_f32(d, b + i)), d, out + i);
  }
};

struct MultiplyAdd {
  const float *a, *b;
  float* sum;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    const auto so_far = load_f32(d, sum + i);
    hn::StoreU(hn::MulAdd(load_f32(d, a + i), load_f32(d, b + i), so_far), d, sum + i);
  }
};

// Computes e^(a - shift).
struct Exp {
  const float* a;
  float shift;
  float* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    hn::StoreU(exp_lanes(d, hn::Sub(load_f32(d, a + i), hn::Set(d, shift))), d, out + i);
  }
};

// Uses e^-|x|, which does not overflow and keeps small results as exact as large ones.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid_lanes(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp_lanes(d, hn::Neg(hn::Abs(x)));
  const auto below = hn::Lt(x, hn::Zero(d));
  const auto sum = hn::Add(one, e);
  const auto lost = hn::Sub(e, hn::Sub(sum, one));
  const auto y = hn::Div(hn::IfThenElse(below, e, one), sum);
  // Corrects the rounding of the sum to first order; 1 / sum is y or 1 - y.
  const auto inverse = hn::IfThenElse(below, hn::Sub(one, y), y);
  return hn::NegMulAdd(y, hn::Mul(lost, inverse), y);
}

// A function of one value: `of` computes it.
template <class F>
struct Unary {
  const float* a;
  float* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    hn::StoreU(F::of(d, load_f32(d, a + i)), d, out + i);
  }
};

template <class F>
struct Gated {
  const float *gate, *up;
  float* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    hn::StoreU(hn::Mul(F::of(d, load_f32(d, gate + i)), load_f32(d, up + i)), d, out + i);
  }
};

struct Sigmoid {
  template <class D>
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) {
    return sigmoid_lanes(d, x);
  }
};

struct Silu {
  template <class D>
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) {
    return hn::Mul(x, sigmoid_lanes(d, x));
  }
};

// Computes x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), which is x sigmoid(2 u).
struct GeluTanh {
  template <class D>
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) {
    const auto cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715f), x);
    const auto twice_u = hn::Mul(cubic, hn::Set(d, 1.5957691216057308f));
    return hn::Mul(x, sigmoid_lanes(d, twice_u));
  }
};

// Computes x times the normal distribution function. With t = 1 / (1 + 0.4 |x| / sqrt(2)), the
// function at -|x| is e^(-x^2 / 2) times a polynomial in t, fitted by least squares to a relative
// error of 1e-7.
struct Gelu {
  template <class D>
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) {
    constexpr float kFit[] = {0.020133948f, -0.06773651f, 0.036923032f, 0.049862575f, 0.035755664f,
                              0.09848088f,  0.100479454f, 0.11328784f,  0.11281315f};
    const auto one = hn::Set(d, 1.0f);
    const auto t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.28284273f), one));
    auto p = hn::Set(d, kFit[0]);
    for (size_t k = 1; k < std::size(kFit); ++k) p = hn::MulAdd(p, t, hn::Set(d, kFit[k]));
    const auto e = exp_lanes(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
    const auto tail = hn::Mul(hn::Mul(p, t), e);
    const auto below = hn::Lt(x, hn::Zero(d));
    return hn::Mul(x, hn::IfThenElse(below, tail, hn::Sub(one, tail)));
  }
};

struct Divide {
  float divisor;
  float* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    hn::StoreU(hn::Div(load_f32(d, out + i), hn::Set(d, divisor)), d, out + i);
  }
};

template <class From, class To>
struct Cast {
  const From* a;
  To* out;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    store_f32(d, load_f32(d, a + i), out + i);
  }
};

void add_task(const float* a, const float* b, float* out, size_t n) { each(n, Add{a, b, out}); }
void multiply_add_task(const float* a, const float* b, float* sum, size_t n) {
  each(n, MultiplyAdd{a, b, sum});
}
void mul_task(const float* a, const float* b, float* out, size_t n) { each(n, Mul{a, b, out}); }
void exp_task(const float* a, float shift, float* out, size_t n) { each(n, Exp{a, shift, out}); }
void sigmoid_task(const float* a, float* out, size_t n) { each(n, Unary<Sigmoid>{a, out}); }
void gelu_tanh_task(const float* a, float* out, size_t n) { each(n, Unary<GeluTanh>{a, out}); }
void gelu_task(const float* a, float* out, size_t n) { each(n, Unary<Gelu>{a, out}); }
void gated_task(GateActivation activation, const float* gate, const float* up, float* out,
                size_t n) {
  if (activation == GateActivation::kSilu) return each(n, Gated<Silu>{gate, up, out});
  if (activation == GateActivation::kGelu) return each(n, Gated<Gelu>{gate, up, out});
  each(n, Gated<GeluTanh>{gate, up, out});
}
void divide_task(float divisor, float* out, size_t n) { each(n, Divide{divisor, out}); }

template <class From>
void cast_from(const void* a, DType to, void* out, size_t n) {
  const auto* from = static_cast<const From*>(a);
  if (to == DType::kF32) return each(n, Cast<From, float>{from, static_cast<float*>(out)});
  if (to == DType::kBF16) return each(n, Cast<From, BF16>{from, static_cast<BF16*>(out)});
  each(n, Cast<From, F16>{from, static_cast<F16*>(out)});
}

void cast_task(DType from, const void* a, DType to, void* out, size_t n) {
  if (from == DType::kF32) return cast_from<float>(a, to, out, n);
  if (from == DType::kBF16) return cast_from<BF16>(a, to, out, n);
  cast_from<F16>(a, to, out, n);
}

// Value i goes to sum i mod kSums. Then the upper half of the sums is added to the lower half until
// one sum is left. So the additions do not depend on the number of lanes.
float sum_task(const float* a, size_t n) {
  constexpr size_t kSums = 64, kVectors = kSums / kLanes;
  const F32 d;
  VF32 sums[kVectors];
  for (VF32& v : sums) v = hn::Zero(d);
  size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], load_f32(d, a + i + v * kLanes));
    }
  }
  if (i < n) {
    float rest[kSums] = {};
    std::memcpy(rest, a + i, (n - i) * sizeof(float));
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], load_f32(d, rest + v * kLanes));
    }
  }
  HWY_ALIGN float lanes[kSums];
  for (size_t v = 0; v < kVectors; ++v) hn::Store(sums[v], d, lanes + v * kLanes);
  for (size_t half = kSums / 2; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// Returns the largest of n >= 1 values; NaN may be ignored.
float max_task(const float* a, size_t n) {
  const F32 d;
  float top = a[0];
  size_t i = 0;
  if (n >= kLanes) {
    VF32 tops = load_f32(d, a);
    for (i = kLanes; i + kLanes <= n; i += kLanes) tops = hn::Max(tops, load_f32(d, a + i));
    top = hn::GetLane(hn::MaxOfLanes(d, tops));
  }
  for (; i < n; ++i) top = top < a[i] ? a[i] : top;
  return top;
}

struct Convolve {
  const float *x, *w;
  float bias;
  float* out;
  size_t kernel;
  template <class D>
  HWY_INLINE void operator()(D d, size_t i) const {
    auto sum = hn::Set(d, bias);
    for (size_t j = 0; j < kernel; ++j) {
      sum = hn::MulAdd(hn::Set(d, w[j]), load_f32(d, x + i + j), sum);
    }
    hn::StoreU(sum, d, out + i);
  }
};

// Computes channels [begin, end). If there is one position and a kernel of 4, which is a step of
// decoding, a vector of channels is computed at a time, with the additions in the order of
// Convolve.
void convolve_task(const ConvArgs& args, size_t begin, size_t end) {
  const size_t positions = args.length - args.kernel + 1;
  size_t c = begin;
#if HWY_TARGET != HWY_SCALAR
  if (positions == 1 && args.kernel == 4) {
    const F32 d;
    for (; c + kLanes <= end; c += kLanes) {
      VF32 x0, x1, x2, x3, w0, w1, w2, w3;
      hn::LoadInterleaved4(d, args.x + c * 4, x0, x1, x2, x3);
      hn::LoadInterleaved4(d, args.w + c * 4, w0, w1, w2, w3);
      VF32 sum = args.bias ? load_f32(d, args.bias + c) : hn::Zero(d);
      sum = hn::MulAdd(w1, x1, hn::MulAdd(w0, x0, sum));
      sum = hn::MulAdd(w3, x3, hn::MulAdd(w2, x2, sum));
      hn::StoreU(sum, d, args.out + c);
    }
  }
#endif
  for (; c < end; ++c) {
    each(positions,
         Convolve{args.x + c * args.length, args.w + c * args.kernel,
                  args.bias ? args.bias[c] : 0.0f, args.out + c * positions, args.kernel});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <functional>

#include "kernels/compute.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(add_task);
HWY_EXPORT(mul_task);
HWY_EXPORT(multiply_add_task);
HWY_EXPORT(exp_task);
HWY_EXPORT(sigmoid_task);
HWY_EXPORT(gelu_tanh_task);
HWY_EXPORT(gelu_task);
HWY_EXPORT(gated_task);
HWY_EXPORT(divide_task);
HWY_EXPORT(cast_task);
HWY_EXPORT(sum_task);
HWY_EXPORT(max_task);
HWY_EXPORT(convolve_task);

constexpr size_t kConvTaskValues = size_t{1} << 14;

size_t count(int64_t n) { return n > 0 ? static_cast<size_t>(n) : 0; }

}  // namespace

void add_f32(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_task)(a, b, out, count(n));
}

void mul_f32(const float* a, const float* b, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(mul_task)(a, b, out, count(n));
}

void multiply_add_f32(const float* a, const float* b, float* sum, int64_t n) {
  HWY_DYNAMIC_DISPATCH(multiply_add_task)(a, b, sum, count(n));
}

void sigmoid_f32(const float* a, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(sigmoid_task)(a, out, count(n));
}

void gelu_tanh_f32(const float* a, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_tanh_task)(a, out, count(n));
}

void gelu_f32(const float* a, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gelu_task)(a, out, count(n));
}

void gated_product_f32(GateActivation activation, const float* gate, const float* up, float* out,
                       int64_t n) {
  HWY_DYNAMIC_DISPATCH(gated_task)(activation, gate, up, out, count(n));
}

void exp_f32(const float* a, float* out, int64_t n) {
  HWY_DYNAMIC_DISPATCH(exp_task)(a, 0.0f, out, count(n));
}

void cast(DType from, const void* a, DType to, void* out, int64_t n) {
  if (n <= 0) return;
  if (from == to) {
    std::memcpy(out, a, count(n) * dtype_bytes(from));
  } else {
    HWY_DYNAMIC_DISPATCH(cast_task)(from, a, to, out, count(n));
  }
}

float sum_f32(const float* a, int64_t n) { return HWY_DYNAMIC_DISPATCH(sum_task)(a, count(n)); }

void softmax_row_f32(const float* a, float* out, int64_t n) {
  if (n <= 0) return;
  const float top = HWY_DYNAMIC_DISPATCH(max_task)(a, count(n));
  HWY_DYNAMIC_DISPATCH(exp_task)(a, top, out, count(n));
  HWY_DYNAMIC_DISPATCH(divide_task)(sum_f32(out, n), out, count(n));
}

void depthwise_conv1d_f32(const float* x, const float* w, const float* bias, float* out,
                          int64_t channels, int64_t length, int64_t kernel, ThreadPool& pool) {
  if (channels <= 0 || kernel < 0 || length < kernel) return;
  const ConvArgs args{x, w, bias, out, count(length), count(kernel)};
  const size_t step = std::max<size_t>(1, kConvTaskValues / (args.length * 2 + 1));
  const auto run = [&](size_t task) {
    HWY_DYNAMIC_DISPATCH(convolve_task)
    (args, task * step, std::min(count(channels), (task + 1) * step));
  };
  pool.parallel_for((count(channels) + step - 1) / step, std::ref(run));
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
