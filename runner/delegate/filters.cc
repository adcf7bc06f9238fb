#include "runner/delegate/plan.h"

#include <fmt/format.h>

#include "core/checked.h"

namespace ferry::runner {
namespace {

using xnnpack::Datatype;

using Constants = std::span<const std::span<const std::byte>>;

// Returns the bytes of a constant. kBadInput unless their number is `bytes`.
Result<const std::byte*> bytes_of(Constants constants, uint32_t index, uint64_t bytes,
                                  std::string_view what) {
  if (index == 0 || index >= constants.size()) {
    return bad_input(fmt::format("the filter has no {}", what));
  }
  if (constants[index].size() >= bytes) return constants[index].data();
  return bad_input(fmt::format("the filter has {} bytes of {}, expected {}",
                               constants[index].size(), what, bytes));
}

Status check_groups(int64_t columns, uint32_t group) {
  if (group > 0 && columns % group == 0) return {};
  return bad_input(fmt::format("groups of {} in rows of {}", group, columns));
}

// Reads the scales of each row, or of each group of a row.
Status read_scales(const xnnpack::Value& value, Constants constants, kernels::CodedMatrix& matrix) {
  uint32_t scales = 0, count = 0;
  int32_t channel_dim = -1;
  if (const auto* channel = std::get_if<xnnpack::PerChannel>(&value.quantization)) {
    scales = channel->scales, count = channel->num_scales, channel_dim = channel->channel_dim;
  } else if (const auto* group = std::get_if<xnnpack::PerChannelGroup>(&value.quantization)) {
    FERRY_RETURN_IF_ERROR(check_groups(matrix.columns, group->group_size));
    scales = group->scales, count = group->num_scales, channel_dim = group->channel_dim;
    matrix.group = group->group_size;
    matrix.scale_dtype = DType::kBF16;
  }
  const bool grouped = matrix.group > 0;
  if (channel_dim != 0 || grouped != (value.datatype == Datatype::kQBInt4)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a filter in {} with other scales than one for each {} is not "
                            "supported",
                            datatype_name(value.datatype),
                            value.datatype == Datatype::kQBInt4 ? "group of a row" : "row"));
  }
  const int64_t expected = matrix.rows * (grouped ? matrix.columns / matrix.group : 1);
  if (count != expected) {
    return bad_input(fmt::format("the filter has {} scales, expected {}", count, expected));
  }
  const uint64_t bytes = static_cast<uint64_t>(expected * dtype_bytes(matrix.scale_dtype));
  matrix.scales = FERRY_TRY(bytes_of(constants, scales, bytes, "scales"));
  return {};
}

}  // namespace

Result<Filter> read_filter(const xnnpack::Value& value, Constants constants) {
  const bool coded = value.datatype == Datatype::kQBInt4 || value.datatype == Datatype::kQCInt8 ||
                     value.datatype == Datatype::kQCInt4;
  if (value.constant == 0 || (!coded && value.datatype != Datatype::kF32)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("a filter in {}{} is not supported", datatype_name(value.datatype),
                            value.constant == 0 ? " that is no constant" : ""));
  }
  if (value.dims.size() != 2 || value.dims[0] == 0 || value.dims[1] == 0) {
    return bad_input("the filter is no matrix");
  }
  const int64_t rows = value.dims[0], columns = value.dims[1];
  const int bits = !coded ? 32 : value.datatype == Datatype::kQCInt8 ? 8 : 4;
  if (bits == 4 && columns % 2 != 0) {
    return bad_input(fmt::format("4-bit rows of {} codes", columns));
  }
  const std::optional<int64_t> codes = checked_mul(rows, columns);
  const auto all_bits = codes ? checked_mul<int64_t>(*codes, bits) : std::nullopt;
  if (!all_bits) return bad_input("the size of the filter overflows");
  const auto* data =
      FERRY_TRY(bytes_of(constants, value.constant, static_cast<uint64_t>(*all_bits / 8), "data"));
  Filter filter{.columns = columns};
  if (!coded) {
    filter.f32 = data;
    return filter;
  }
  filter.coded = {.bits = bits, .rows = rows, .columns = columns, .codes = data};
  FERRY_RETURN_IF_ERROR(read_scales(value, constants, filter.coded));
  return filter;
}

}  // namespace ferry::runner
