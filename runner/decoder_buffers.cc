#include "runner/decoder_buffers.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::runner {
namespace {

std::vector<float> halves(const TensorView& stored) {
  std::vector<float> values(stored.bytes.size() / 2);
  to_f32(DType::kF16, stored.bytes.data(), values.data(), values.size());
  return values;
}

Result<std::vector<float>> coded_rows(const MethodChain& chain, const std::string& name) {
  const TensorView codes = FERRY_TRY(stored_buffer(chain, name));
  const TensorView scales = FERRY_TRY(stored_buffer(chain, name + kCacheScales));
  const TensorView zero_points = FERRY_TRY(stored_buffer(chain, name + kCacheZeroPoints));
  const size_t rows = zero_points.bytes.size();
  if (codes.shape.empty() || scales.dtype != DType::kF32 || zero_points.dtype != DType::kI8 ||
      scales.bytes.size() != rows * sizeof(float) ||
      codes.bytes.size() != rows * static_cast<size_t>(codes.shape.back())) {
    return fail(ErrorCode::kBadInput,
                fmt::format("buffer {} does not have a scale for each row", quoted(name)));
  }
  const auto* scale = reinterpret_cast<const float*>(scales.bytes.data());
  const auto* code = reinterpret_cast<const int8_t*>(codes.bytes.data());
  const auto* zero = reinterpret_cast<const int8_t*>(zero_points.bytes.data());
  const auto width = static_cast<size_t>(codes.shape.back());
  std::vector<float> values(codes.bytes.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t row = i / width;
    values[i] = static_cast<float>(code[i] - zero[row]) * scale[row];
  }
  return values;
}

}  // namespace

Result<TensorView> stored_buffer(const MethodChain& chain, const std::string& name) {
  for (const MethodChain::Link& link : chain.links()) {
    for (const packer::ManifestBuffer& buffer : link.ports->buffers) {
      if (buffer.name == name) return link.method->value(buffer.value);
    }
  }
  return fail(ErrorCode::kUsage, fmt::format("the bundle has no buffer '{}'", name));
}

Result<std::vector<float>> decoded_buffer(const MethodChain& chain, const std::string& name) {
  const TensorView stored = FERRY_TRY(stored_buffer(chain, name));
  if (stored.dtype == DType::kF16) return halves(stored);
  return coded_rows(chain, name);
}

}  // namespace ferry::runner
