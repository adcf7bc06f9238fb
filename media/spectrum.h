// The parts that feature extractors of sound share: the discrete Fourier transform and mel filters.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ferry::media {

// A discrete Fourier transform in f64, by the prime factors of its length.
class Transform {
 public:
  using Complex = std::complex<double>;
  explicit Transform(int64_t length);

  // `in` and `out` have as many elements as the transform.
  void run(const double* in, Complex* out, std::vector<Complex>& scratch) const;

 private:
  void step(const double* in, int64_t stride, Complex* out, int64_t count, size_t level,
            Complex* scratch) const;

  int64_t length_;
  std::vector<Complex> roots_;
  std::vector<int64_t> factors_;
};

// The weights of one mel bin, from the frequency `first` on.
struct MelFilter {
  size_t first = 0;
  std::vector<double> weights = {};

  // Returns `sum` and the weighted values of a spectrum, added in their order.
  double add(std::span<const double> spectrum, double sum = 0) const {
    for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * spectrum[first + i];
    return sum;
  }
};

// Returns triangular filters on Slaney's scale from 0 to 8000 Hz, of equal area, over the
// frequencies of a transform of `window` samples at `rate`. Source: transformers, audio_utils.py,
// mel_filter_bank. With `in_f32` weights are those of its dtype f32: the triangles are rounded, and
// then what they are scaled to.
std::vector<MelFilter> mel_filters(int64_t mel_bins, int64_t window, int64_t rate,
                                   bool in_f32 = false);

// Returns triangular filters on the scale of HTK from `least` to `most` Hz, each with a height
// of 1.
std::vector<MelFilter> htk_mel_filters(int64_t mel_bins, int64_t window, int64_t rate, double least,
                                       double most);

// Returns those from 0 Hz to half of `rate` as torchaudio computes them in f32. Source: torchaudio,
// functional.melscale_fbanks.
std::vector<MelFilter> htk_mel_filters_in_f32(int64_t mel_bins, int64_t window, int64_t rate);

}  // namespace ferry::media
