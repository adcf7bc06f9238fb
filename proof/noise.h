// Noise: how far honest executions of one model differ on one prompt, tensor by tensor, row by row
// and channel by channel. It is measured, and it is what bounds are multiples of.
//
// A row is a position of a tensor (of a recurrent state, one of its own rows); a channel is a place
// in it. Values of a row differ by orders of magnitude from those of another: the first token of
// many language models has hidden states a thousand times larger than all others, in a few
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

#include "core/result.h"
#include "core/shape.h"
#include "proof/reference.h"

namespace ferry::proof {

// Where the values of a tensor of a reference are: [rows, channels]. Heads of a KV cache
// [1,heads,T,dim] are beside each other: rows are positions, channels are heads x dim.
struct NoiseLayout {
  int64_t rows = 0, channels = 0;
  int64_t heads = 1;  // runs of the tensor that are parts of a row
  int64_t part() const { return channels / heads; }
};
NoiseLayout noise_layout(const std::string& tensor, const Shape& shape);

struct TensorNoise {
  NoiseLayout layout;
  std::vector<float> rows;      // rms of the differences of a row
  std::vector<float> values;    // rms of the values of a row
  std::vector<float> channels;  // factor of a channel; the mean of their squares is 1
  double rms = 0;               // of all differences

  // The standard deviation that is expected of the difference at (row, channel), where the value is
  // `want`: never less than the rounding of the value itself.
  double sigma(int64_t row, int64_t channel, float want) const;
};

// Compares a tensor with its expected values in units of its noise.
class NoiseComparison {
 public:
  explicit NoiseComparison(const TensorNoise& noise);

  // A run of a row that begins at `channel`. Values that the noise has no place for are beyond any
  // multiple of it.
  void add(int64_t row, int64_t channel, std::span<const float> got, std::span<const float> want);
  // The whole tensor; another number of values is beyond any multiple.
  void add(std::span<const float> got, std::span<const float> want);
  // The largest ratio of a difference to its noise: of single values, of rows, of channels and of
  // the whole tensor, each as the rms of its values. Few values vary more than many: the ratio of n
  // values is divided by 1 + 3 / sqrt(n). 1 and less is what noise alone gives.
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
  // The differences of `draws`, executions of the same prompts, from `exact`, one that rounds less
  // or as much. Tensors that only one of them has are left out.
  Status add(const Reference& exact, std::span<const Reference* const> draws);

  // nullptr where nothing was measured.
  const TensorNoise* find(const std::string& prompt, const std::string& tensor) const;
  // The largest rms of the logits' noise over prompts.
  double logits_rms() const;

 private:
  std::map<std::pair<std::string, std::string>, TensorNoise> tensors_;
};

}  // namespace ferry::proof
