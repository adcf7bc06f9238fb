// LogitsReader: rows of logits as f32, whatever dtype a program gives them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "runner/method.h"

namespace ferry::runner {

class LogitsReader {
 public:
  // A floating-point dtype that is_castable(), or u8 or u16 with an encoding.
  LogitsReader(DType dtype, std::optional<Encoding> encoding, int64_t vocab)
      : dtype_(dtype), encoding_(encoding), vocab_(static_cast<size_t>(vocab)) {}

  // Rows [begin, begin + count) of [1, AR, V]. Valid until the next call, or as long as `logits`
  // is. Allocates only for more rows than before.
  std::span<const float> rows(const TensorView& logits, size_t begin, size_t count);

 private:
  DType dtype_;
  std::optional<Encoding> encoding_;
  size_t vocab_;
  std::vector<float> floats_;
};

}  // namespace ferry::runner
