// Noise is the measured distance between correct executions of one model on one prompt, by tensor,
// row and channel. Bounds are multiples of the noise.
//
// A row is a position of a tensor (of a recurrent state, one of its own rows); a channel is an
// index in the row. The values of rows differ by orders of magnitude: the first token of many
// language models has hidden states that are a thousand times larger than all others, in a few
// channels. So an error is judged by the noise of its own row and channel, never by the largest
// value of a tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "proof/reference.h"

namespace ferry::proof {

// The layout of a reference tensor as [rows, channels]. In a KV cache [1,heads,T,dim] rows are
// positions, and channels are heads x dim.
struct NoiseLayout {
  int64_t rows = 0, channels = 0;
  int64_t heads = 1;  // number of runs in the tensor that form one row
  int64_t part() const { return channels / heads; }
};
NoiseLayout noise_layout(const std::string& tensor, const Shape& shape);

struct TensorNoise {
  NoiseLayout layout;
  std::vector<float> rows;      // rms of the differences of each row
  std::vector<float> values;    // rms of the values of each row
  std::vector<float> channels;  // factor of each channel; the mean of the squares is 1
  double rms = 0;               // rms of all differences

  // Returns the expected standard deviation of the difference at (row, channel), where the value is
  // `want`. It is at least the rounding of the value itself.
  double sigma(int64_t row, int64_t channel, float want) const;
};

// Compares a tensor with its expected values in units of its noise.
class NoiseComparison {
 public:
  explicit NoiseComparison(const TensorNoise& noise);

  // Adds a run of a row that begins at `channel`. Values outside of the noise's layout exceed any
  // multiple of the noise.
  void add(int64_t row, int64_t channel, std::span<const float> got, std::span<const float> want);
  // Adds the whole tensor. A wrong number of values exceeds any multiple of the noise.
  void add(std::span<const float> got, std::span<const float> want);
  // Returns the largest ratio of a difference to its noise: over single values, rows, channels and
  // the whole tensor, each as the rms of its values. Few values vary more than many, so the ratio
  // of n values is divided by 1 + 3 / sqrt(n). Noise alone gives ratios of at most about 1.
  double ratio() const;

 private:
  struct Sum {
    double squares = 0;
    int64_t count = 0;
    double ratio() const;
  };
  const TensorNoise* noise_;
  std::vector<Sum> rows_, channels_;
  double largest_ = 0;
};

// The noise of all prompts and tensors.
class NoiseModel {
 public:
  // Adds the differences between `draws`, executions of equal prompts, and `exact`, an execution
  // that rounds no more than they do. Tensors that only one of them has are left out.
  Status add(const Reference& exact, std::span<const Reference* const> draws);

  // Returns nullptr if nothing was measured.
  const TensorNoise* find(const std::string& prompt, const std::string& tensor) const;
  // Returns the largest rms of the logits' noise over prompts.
  double logits_rms() const;

 private:
  std::map<std::pair<std::string, std::string>, TensorNoise> tensors_;
};

}  // namespace ferry::proof
