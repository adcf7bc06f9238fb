#include "runner/delegate/narrow_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"

namespace ferry::runner {
namespace {

using kernels::Call;
using kernels::Tensor;
using xnnpack::Datatype;
using xnnpack::NodeKind;

constexpr int64_t kRoundedPiece = int64_t{1} << 15;

using Bytes = std::span<const std::byte>;

// The scale of element i is scales[i / inner % count].
struct Scales {
  std::vector<float> values = {1};
  uint64_t inner = 1;
  int32_t zero_point = 0;
};

Result<Bytes> constant_of(std::span<const Bytes> constants, uint32_t index, uint64_t bytes) {
  if (index > 0 && index < constants.size() && constants[index].size() >= bytes) {
    return constants[index].first(bytes);
  }
  return bad_input(fmt::format("constant {} has not {} bytes", index, bytes));
}

Result<Scales> scales_of(const xnnpack::Value& value, std::span<const Bytes> constants) {
  Scales scales;
  if (const auto* tensor = std::get_if<xnnpack::PerTensor>(&value.quantization)) {
    scales.values = {tensor->scale};
    scales.zero_point = tensor->zero_point;
  } else if (const auto* channel = std::get_if<xnnpack::PerChannel>(&value.quantization)) {
    const auto dim = static_cast<size_t>(channel->channel_dim);
    if (dim >= value.dims.size() || channel->num_scales != value.dims[dim]) {
      return bad_input(fmt::format("{} scales for dimension {}", channel->num_scales, dim));
    }
    for (size_t i = dim + 1; i < value.dims.size(); ++i) scales.inner *= value.dims[i];
    const Bytes bytes = FERRY_TRY(
        constant_of(constants, channel->scales, uint64_t{channel->num_scales} * sizeof(float)));
    scales.values.resize(channel->num_scales);
    std::memcpy(scales.values.data(), bytes.data(), bytes.size());
  }
  return scales;
}

std::optional<DType> stored_dtype(Datatype datatype) {
  switch (datatype) {
    case Datatype::kF32:
      return DType::kF32;
    case Datatype::kF16:
      return DType::kF16;
    case Datatype::kBF16:
      return DType::kBF16;
    case Datatype::kQInt8:
    case Datatype::kQCInt8:
      return DType::kI8;
    case Datatype::kQUInt8:
      return DType::kU8;
    case Datatype::kQInt32:
    case Datatype::kQCInt32:
      return DType::kI32;
    default:
      return std::nullopt;
  }
}

// Calls f(index of the first value, values in f32, their number) for the values of a tensor.
template <class F>
void for_values(const Call& call, const Tensor& tensor, const F& f) {
  kernels::for_pieces(call.pool, tensor.numel, kRoundedPiece, [&](int64_t begin, int64_t end) {
    float values[1024];
    for (int64_t at = begin; at < end; at += std::ssize(values)) {
      const int64_t count = std::min<int64_t>(std::ssize(values), end - at);
      kernels::load(tensor.dtype, tensor.data + at * tensor.element_bytes(), values, count);
      f(at, values, count);
    }
  });
}

float scale_of(const Call& call, size_t i) {
  return static_cast<float>(kernels::number(call, i).real);
}

}  // namespace

bool is_kept(Datatype datatype) {
  return datatype == Datatype::kF32 || datatype == Datatype::kF16 || datatype == Datatype::kBF16 ||
         datatype == Datatype::kQInt8 || datatype == Datatype::kQUInt8;
}

DType argument_dtype(Datatype datatype) { return stored_dtype(datatype).value_or(DType::kF32); }

bool moves_values(NodeKind kind) {
  return kind == NodeKind::kStaticTranspose || kind == NodeKind::kStaticReshape ||
         kind == NodeKind::kStaticSlice || kind == NodeKind::kCopy ||
         kind == NodeKind::kMaxPooling2d || kind == NodeKind::kConcatenate2 ||
         kind == NodeKind::kConcatenate3 || kind == NodeKind::kConcatenate4 ||
         kind == NodeKind::kConcatenate5;
}

Result<std::vector<float>> widened_constant(const xnnpack::Value& value,
                                            std::span<const Bytes> constants) {
  const std::optional<DType> dtype = stored_dtype(value.datatype);
  uint64_t count = 1;
  for (uint32_t dim : value.dims) {
    const auto product = checked_mul<uint64_t>(count, dim);
    if (!product || *product > INT64_MAX / sizeof(double)) return bad_input("its size overflows");
    count = *product;
  }
  if (!dtype) {
    return fail(ErrorCode::kUnsupported, fmt::format("a constant in {} is not supported here",
                                                     xnnpack::datatype_name(value.datatype)));
  }
  const auto element = static_cast<uint64_t>(dtype_bytes(*dtype));
  const Bytes bytes = FERRY_TRY(constant_of(constants, value.constant, count * element));
  const Scales scales = FERRY_TRY(scales_of(value, constants));
  std::vector<float> values(count);
  // Codes of 32 bits, which are biases, lose what f32 does not hold only after their scale.
  std::vector<double> exact(std::min<uint64_t>(count, 4096));
  for (uint64_t at = 0; at < count; at += exact.size()) {
    const uint64_t n = std::min<uint64_t>(exact.size(), count - at);
    kernels::load(*dtype, bytes.data() + at * element, exact.data(), static_cast<int64_t>(n));
    for (uint64_t i = 0; i < n; ++i) {
      const float scale = scales.values[(at + i) / scales.inner % scales.values.size()];
      values[at + i] =
          static_cast<float>((exact[i] - scales.zero_point) * static_cast<double>(scale));
    }
  }
  return values;
}

void add_encoding(const xnnpack::Value& value, KernelArgs& args) {
  const auto* tensor = std::get_if<xnnpack::PerTensor>(&value.quantization);
  args.real(tensor == nullptr ? 0 : static_cast<double>(tensor->scale));
  args.integer(tensor == nullptr ? 0 : tensor->zero_point);
}

Status widen_argument(const Call& call) {
  const Tensor& from = kernels::tensor(call, 0);
  const float scale = scale_of(call, 1);
  const auto zero_point = static_cast<float>(kernels::integer(call, 2));
  float* out = kernels::tensor(call, 3).as<float>();
  for_values(call, from, [&](int64_t at, const float* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      out[at + i] = scale == 0 ? values[i] : (values[i] - zero_point) * scale;
    }
  });
  return {};
}

Status narrow_result(const Call& call) {
  const Tensor& from = kernels::tensor(call, 0);
  const float scale = scale_of(call, 1);
  const auto zero_point = static_cast<float>(kernels::integer(call, 2));
  Tensor& out = kernels::tensor(call, 3);
  FERRY_RETURN_IF_ERROR(kernels::resize(out, from.sizes));
  for_values(call, from, [&](int64_t at, float* values, int64_t count) {
    if (scale != 0) {
      for (int64_t i = 0; i < count; ++i) {
        values[i] = std::nearbyint(values[i] / scale) + zero_point;
      }
    }
    kernels::store(out.dtype, values, out.data + at * out.element_bytes(), count);
  });
  return {};
}

Status round_values(const Call& call) {
  const Tensor& from = kernels::tensor(call, 0);
  const float scale = scale_of(call, 1);
  const auto zero_point = static_cast<float>(kernels::integer(call, 2));
  const auto dtype = static_cast<DType>(call.variant);
  float* out = kernels::tensor(call, 3).as<float>();
  const float low = (dtype == DType::kU8 ? 0 : -128) - zero_point;
  const float high = (dtype == DType::kU8 ? 255 : 127) - zero_point, inverse = 1 / scale;
  for_values(call, from, [&](int64_t at, float* values, int64_t count) {
    if (scale != 0) {
      for (int64_t i = 0; i < count; ++i) {
        const float code = std::clamp(values[i] * inverse, low, high);
        out[at + i] = std::nearbyint(code) * scale;
      }
      return;
    }
    std::byte stored[2 * 1024];
    kernels::store(dtype, values, stored, count);
    kernels::load(dtype, stored, out + at, count);
  });
  return {};
}

}  // namespace ferry::runner
