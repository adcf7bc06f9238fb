#include "runner/static_program/logits_reader.h"

#include <cstring>

namespace ferry::runner {
namespace {

void decode(DType dtype, const Encoding& encoding, const std::byte* codes, std::span<float> out) {
  const auto size = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t code = 0;
    std::memcpy(&code, codes + i * size, size);
    out[i] = static_cast<float>(encoding.real(code));
  }
}

}  // namespace

std::span<const float> LogitsReader::rows(const TensorView& logits, size_t begin, size_t count) {
  const size_t elements = count * vocab_;
  const std::byte* from =
      logits.bytes.data() + begin * vocab_ * static_cast<size_t>(dtype_bytes(dtype_));
  // A tensor's memory is aligned to its dtype.
  if (dtype_ == DType::kF32) return {reinterpret_cast<const float*>(from), elements};
  if (floats_.size() < elements) floats_.resize(elements);
  const std::span<float> out = std::span(floats_).first(elements);
  if (encoding_) {
    decode(dtype_, *encoding_, from, out);
  } else {
    to_f32(dtype_, from, out.data(), elements);
  }
  return out;
}

}  // namespace ferry::runner
