#include "formats/pte/program.h"

#include "core/checked.h"

namespace ferry::pte {

std::optional<uint64_t> tensor_bytes(const Tensor& tensor) {
  int64_t bits = 1;
  for (int32_t size : tensor.sizes) {
    if (size < 0 || __builtin_mul_overflow(bits, int64_t{size}, &bits)) return std::nullopt;
  }
  if (__builtin_mul_overflow(bits, int64_t{dtype_bits(tensor.dtype)}, &bits)) return std::nullopt;
  return static_cast<uint64_t>(bits / 8) + (bits % 8 == 0 ? 0 : 1);
}

}  // namespace ferry::pte
