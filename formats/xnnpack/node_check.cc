#include "formats/xnnpack/node_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "formats/xnnpack/node_rules.h"
#include "formats/xnnpack/validate.h"  // kMaxRank

namespace ferry::xnnpack {

bool is_float(Datatype datatype) {
  return datatype == Datatype::kF32 || datatype == Datatype::kF16 || datatype == Datatype::kBF16;
}

bool is_elementwise(Datatype datatype) {
  return is_float(datatype) || datatype == Datatype::kQInt8 || datatype == Datatype::kQUInt8;
}

namespace {

// Broadcasts as NumPy does. Returns nullopt if the shapes are incompatible.
std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t i = 1; i <= out.size(); ++i) {
    const uint32_t left = i <= a.size() ? a[a.size() - i] : 1;
    const uint32_t right = i <= b.size() ? b[b.size() - i] : 1;
    if (left != right && left != 1 && right != 1) return std::nullopt;
    out[out.size() - i] = std::max(left, right);
  }
  return out;
}

}  // namespace

Status NodeCheck::run() {
  for (index_ = 0; index_ < graph_.nodes.size(); ++index_) {
    FERRY_RETURN_IF_ERROR(check_node());
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    if (has_source_[i]) continue;
    return bad_input(fmt::format("{}: value {}: nothing makes it", file_, graph_.values[i].id));
  }
  return {};
}

Status NodeCheck::check_node() {
  const NodeInfo* info = find_node_info(node().kind);
  if (info == nullptr || info->form == Form::kAbsent) return unsupported("unsupported node kind");
  if (node().inputs.size() != info->inputs || node().outputs.size() != 1) {
    return error(
        fmt::format("{} inputs and {} outputs", node().inputs.size(), node().outputs.size()));
  }
  FERRY_RETURN_IF_ERROR(check_sources(*info));
  FERRY_RETURN_IF_ERROR(check_range(*info));
  if ((node().flags & ~known_flags(info->form)) != 0) {
    return unsupported(fmt::format("flags {}", node().flags));
  }
  FERRY_RETURN_IF_ERROR(check_factors(*info));
  return check_form(*info);
}

uint32_t NodeCheck::known_flags(Form form) const {
  if (form == Form::kFullyConnected) return 1;
  if (form == Form::kResize) return kAlignCorners;
  const bool pools = form == Form::kPooling || node().kind == NodeKind::kGlobalAvgPooling2d;
  return pools ? kKeepDims : 0;
}

Status NodeCheck::check_sources(const NodeInfo& info) {
  const bool has_bias = info.form == Form::kFullyConnected || info.form == Form::kConvolution;
  for (size_t i = 0; i < node().inputs.size(); ++i) {
    const uint32_t id = node().inputs[i];
    if (has_bias && i == 2 && id == kNone) continue;
    const size_t value = values_.find(id);
    if (value == SIZE_MAX) return error(fmt::format("there is no value {}", id));
    if (!has_source_[value]) return error(fmt::format("uses value {} before it is made", id));
  }
  const size_t made = values_.find(node().outputs[0]);
  if (made == SIZE_MAX) return error(fmt::format("there is no value {}", node().outputs[0]));
  if (has_source_[made]) return error(fmt::format("makes value {} again", node().outputs[0]));
  has_source_[made] = true;
  return {};
}

Status NodeCheck::check_range(const NodeInfo& info) const {
  if (!node().output_range) return {};
  if (!info.may_clamp) return unsupported("a range of its output");
  const auto [min, max] = *node().output_range;
  if (min < max) return {};
  return error(fmt::format("a range of its output from {} to {}", min, max));
}

Status NodeCheck::check_factors(const NodeInfo& info) const {
  const bool wanted = info.form == Form::kFactor || info.form == Form::kPad;
  if (node().factors.size() != (wanted ? 1U : 0U)) return error("its number of factors");
  if (info.form == Form::kFactor && !std::isfinite(node().factors[0])) {
    return error(fmt::format("factor {}", node().factors[0]));
  }
  return {};
}

Status NodeCheck::check_form(const NodeInfo& info) const {
  switch (info.form) {
    case Form::kUnary:
    case Form::kFactor:
      if (node().kind == NodeKind::kGlobalAvgPooling2d) return check_global_pooling();
      return node().kind == NodeKind::kConvert ? check_convert() : check_unary();
    case Form::kBinary:
      if (node().kind == NodeKind::kPrelu) return check_slopes();
      return node().kind == NodeKind::kBatchMatrixMultiply ? check_product() : check_binary();
    case Form::kFullyConnected:
      return check_fully_connected();
    case Form::kConcatenate:
      return check_concatenate();
    case Form::kTranspose:
      return check_transpose();
    case Form::kReshape:
      return check_reshape();
    case Form::kSlice:
      return check_slice();
    case Form::kPad:
      return check_pad();
    case Form::kConvolution:
      return check_convolution();
    case Form::kPooling:
      return check_pooling();
    case Form::kResize:
      return check_resize();
    case Form::kAbsent:
      break;
  }
  return {};
}

// -- what rules have in common
Status NodeCheck::expect_numbers(size_t count) const {
  if (node().numbers.size() == count) return {};
  return error(fmt::format("{} numbers, expected {}", node().numbers.size(), count));
}

Status NodeCheck::expect_output(const Dims& dims) const {
  if (output().dims == dims) return {};
  return error(fmt::format("its output is [{}], stated [{}]", fmt::join(dims, ", "),
                           fmt::join(output().dims, ", ")));
}

// Checks that all inputs and the output have one datatype in which elements can be computed.
Status NodeCheck::expect_one_datatype() const {
  for (size_t i = 0; i < node().inputs.size(); ++i) {
    if (input(i).datatype != output().datatype) {
      return error(fmt::format("{} into {}", datatype_name(input(i).datatype),
                               datatype_name(output().datatype)));
    }
  }
  if (is_elementwise(output().datatype)) return {};
  return unsupported(datatype_name(output().datatype));
}

// Checks that inputs and output have one datatype and quantisation, because elements
// are moved and not computed.
Status NodeCheck::expect_same_elements() const {
  FERRY_RETURN_IF_ERROR(expect_one_datatype());
  for (size_t i = 0; i < node().inputs.size(); ++i) {
    if (input(i).quantization != output().quantization) {
      return error("moves elements into another quantisation");
    }
  }
  return {};
}

// -- elements
Status NodeCheck::check_unary() const {
  FERRY_RETURN_IF_ERROR(node().kind == NodeKind::kCopy ? expect_same_elements()
                                                       : expect_one_datatype());
  if (node().kind == NodeKind::kSoftmax && input(0).dims.empty()) return error("of a scalar");
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  return expect_output(input(0).dims);
}

Status NodeCheck::check_binary() const {
  FERRY_RETURN_IF_ERROR(expect_one_datatype());
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  const auto dims = broadcast(input(0).dims, input(1).dims);
  if (dims) return expect_output(*dims);
  return error(
      fmt::format("[{}] and [{}]", fmt::join(input(0).dims, ", "), fmt::join(input(1).dims, ", ")));
}

Status NodeCheck::check_convert() const {
  const Datatype from = input(0).datatype, to = output().datatype;
  const bool known = (from == Datatype::kF32 && to == Datatype::kQDInt8) ||
                     (is_float(from) && is_elementwise(to)) ||
                     (is_elementwise(from) && is_float(to)) ||
                     (from == Datatype::kQInt8 && to == Datatype::kQInt8);
  if (!known) {
    return unsupported(fmt::format("{} into {}", datatype_name(from), datatype_name(to)));
  }
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  return expect_output(input(0).dims);
}

// -- matrices
Status NodeCheck::check_product() const {
  FERRY_RETURN_IF_ERROR(expect_one_datatype());
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  if (!is_float(output().datatype)) return unsupported(datatype_name(output().datatype));
  Dims left = input(0).dims, right = input(1).dims;
  const bool fit =
      left.size() >= 2 && left.size() == right.size() && left.back() == right[right.size() - 2];
  const auto [rows, columns] =
      fit ? std::pair(left[left.size() - 2], right.back()) : std::pair(0U, 0U);
  if (fit) {
    left.resize(left.size() - 2);
    right.resize(right.size() - 2);
  }
  auto dims = fit ? broadcast(left, right) : std::nullopt;
  if (!dims) {
    return error(fmt::format("[{}] by [{}]", fmt::join(input(0).dims, ", "),
                             fmt::join(input(1).dims, ", ")));
  }
  dims->push_back(rows);
  dims->push_back(columns);
  return expect_output(*dims);
}

Status NodeCheck::check_fully_connected() const {
  FERRY_RETURN_IF_ERROR(check_weights());
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  const Value& filter = input(1);
  if (filter.dims.size() != 2) return error(fmt::format("a filter of rank {}", filter.dims.size()));
  const bool transposed = node().flags == 1;
  if (transposed && !is_float(filter.datatype)) return error("transposed codes");
  const uint32_t rows = filter.dims[transposed ? 1 : 0], columns = filter.dims[transposed ? 0 : 1];
  Dims dims = input(0).dims;
  if (dims.empty() || dims.back() != columns) {
    return error(fmt::format("rows of [{}] by a filter of [{}]", fmt::join(dims, ", "),
                             fmt::join(filter.dims, ", ")));
  }
  FERRY_RETURN_IF_ERROR(check_bias(rows));
  dims.back() = rows;
  return expect_output(dims);
}

Status NodeCheck::check_weights() const {
  const Value& rows = input(0);
  const Value& filter = input(1);
  if (filter.constant == 0) return unsupported("a filter that is no constant");
  if (!is_supported_product(rows.datatype, filter.datatype, output().datatype)) {
    return unsupported(fmt::format("{} by {} into {}", datatype_name(rows.datatype),
                                   datatype_name(filter.datatype),
                                   datatype_name(output().datatype)));
  }
  const auto* channels = std::get_if<PerChannel>(&filter.quantization);
  if (channels && channels->channel_dim != 0) return error("scales that are not of its rows");
  const auto* token = std::get_if<PerToken>(&rows.quantization);
  if (token && token->num_nonbatch_dims != 1) {
    return unsupported(fmt::format("rows of {} dimensions", token->num_nonbatch_dims));
  }
  return {};
}

bool NodeCheck::is_supported_product(Datatype rows, Datatype filter, Datatype out) {
  const bool channels = filter == Datatype::kQCInt8 || filter == Datatype::kQCInt4;
  if (out == Datatype::kF32 && rows == Datatype::kQDInt8) {
    return channels || filter == Datatype::kQBInt4;
  }
  if (out == Datatype::kF32 && rows == Datatype::kF32) {
    return channels || filter == Datatype::kF32 || filter == Datatype::kF16;
  }
  if (rows == Datatype::kQInt8 && out == Datatype::kQInt8) {
    return filter == Datatype::kQCInt8 || filter == Datatype::kQInt8;
  }
  if (rows == Datatype::kBF16) {
    return filter == Datatype::kBF16 && (out == Datatype::kF32 || out == Datatype::kBF16);
  }
  return rows == Datatype::kF16 && filter == Datatype::kF16 && out == Datatype::kF16;
}

Status NodeCheck::check_bias(uint64_t rows) const {
  if (node().inputs[2] == kNone) return {};
  const Value& bias = input(2);
  if (bias.constant == 0) return unsupported("a bias that is no constant");
  const bool codes = output().datatype == Datatype::kQInt8;
  const bool type =
      codes ? bias.datatype == Datatype::kQInt32 || bias.datatype == Datatype::kQCInt32
            : bias.datatype == Datatype::kF32 ||
                  (bias.datatype == Datatype::kF16 && output().datatype == Datatype::kF16);
  if (type && bias.dims.size() == 1 && bias.dims[0] == rows) return {};
  return error(fmt::format("a bias of {} [{}] for {} rows", datatype_name(bias.datatype),
                           fmt::join(bias.dims, ", "), rows));
}

// The slopes belong to the last dimension.
Status NodeCheck::check_slopes() const {
  FERRY_RETURN_IF_ERROR(expect_one_datatype());
  FERRY_RETURN_IF_ERROR(expect_numbers(0));
  uint64_t slopes = 1;
  for (const uint32_t dim : input(1).dims) slopes *= dim;
  const bool last = !input(1).dims.empty() && input(1).dims.back() == slopes;
  if (input(0).dims.empty() || !last || (slopes != 1 && slopes != input(0).dims.back())) {
    return error(fmt::format("slopes [{}] for [{}]", fmt::join(input(1).dims, ", "),
                             fmt::join(input(0).dims, ", ")));
  }
  return expect_output(input(0).dims);
}

// -- moves
Status NodeCheck::check_concatenate() const {
  FERRY_RETURN_IF_ERROR(expect_same_elements());
  FERRY_RETURN_IF_ERROR(expect_numbers(1));
  Dims dims = input(0).dims;
  const int64_t axis = node().numbers[0];
  if (axis < 0 || axis >= static_cast<int64_t>(dims.size())) {
    return error(fmt::format("axis {} of rank {}", axis, dims.size()));
  }
  const auto at = static_cast<size_t>(axis);
  uint64_t total = 0;
  for (size_t i = 0; i < node().inputs.size(); ++i) {
    Dims part = input(i).dims;
    if (part.size() == dims.size()) total += std::exchange(part[at], dims[at]);
    if (part != dims) return error("shapes that differ beside the axis");
  }
  if (total > UINT32_MAX) return error("its output overflows");
  dims[at] = static_cast<uint32_t>(total);
  return expect_output(dims);
}

Status NodeCheck::check_transpose() const {
  FERRY_RETURN_IF_ERROR(expect_same_elements());
  const Dims& from = input(0).dims;
  FERRY_RETURN_IF_ERROR(expect_numbers(from.size()));
  std::vector<bool> taken(from.size());
  Dims dims;
  for (const int64_t number : node().numbers) {
    const auto dim = static_cast<uint64_t>(number);
    if (dim >= from.size() || taken[dim]) return error("no permutation");
    taken[dim] = true;
    dims.push_back(from[dim]);
  }
  return expect_output(dims);
}

// At most one dimension follows from the others.
Status NodeCheck::check_reshape() const {
  FERRY_RETURN_IF_ERROR(expect_same_elements());
  uint64_t elements = 1, known = 1;  // no overflow: bytes of values are checked
  for (uint32_t dim : input(0).dims) elements *= dim;
  size_t open = SIZE_MAX;
  Dims dims;
  if (node().numbers.size() > kMaxRank) return error("too many dimensions");
  for (int64_t number : node().numbers) {
    if (number < 0 || number > UINT32_MAX) return error(fmt::format("dimension {}", number));
    if (number == 0 && open != SIZE_MAX) return error("two dimensions that follow from others");
    if (number == 0) open = dims.size();
    dims.push_back(static_cast<uint32_t>(number));
    if (number != 0 && __builtin_mul_overflow(known, static_cast<uint64_t>(number), &known)) {
      return error("its output overflows");
    }
  }
  const uint64_t rest = elements / known;
  if (rest * known != elements || (open == SIZE_MAX ? rest != 1 : rest > UINT32_MAX)) {
    return error(fmt::format("[{}] into [{}]", fmt::join(input(0).dims, ", "),
                             fmt::join(node().numbers, ", ")));
  }
  if (open != SIZE_MAX) dims[open] = static_cast<uint32_t>(rest);
  return expect_output(dims);
}

Status NodeCheck::check_slice() const {
  FERRY_RETURN_IF_ERROR(expect_same_elements());
  const Dims& from = input(0).dims;
  FERRY_RETURN_IF_ERROR(expect_numbers(2 * from.size()));
  Dims dims;
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t offset = node().numbers[i], size = node().numbers[from.size() + i];
    const bool whole = offset == 0 && size == 0;
    if (offset < 0 || offset > from[i] || size < 0 || size > from[i] - offset ||
        (size == 0 && !whole)) {
      return error(fmt::format("{} elements at {} of {}", size, offset, from[i]));
    }
    dims.push_back(whole ? from[i] : static_cast<uint32_t>(size));
  }
  return expect_output(dims);
}

Status NodeCheck::check_pad() const {
  FERRY_RETURN_IF_ERROR(expect_same_elements());
  const Dims& from = input(0).dims;
  FERRY_RETURN_IF_ERROR(expect_numbers(2 * from.size()));
  Dims dims;
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t before = node().numbers[i], after = node().numbers[from.size() + i];
    const bool sane = before >= 0 && before <= UINT32_MAX && after >= 0 && after <= UINT32_MAX;
    if (!sane || from[i] + before + after > UINT32_MAX) return error("its output overflows");
    dims.push_back(static_cast<uint32_t>(from[i] + before + after));
  }
  return expect_output(dims);
}

Status check_nodes(const Graph& graph, const ValueTable& values, const std::string& name) {
  return NodeCheck(graph, values, name).run();
}

}  // namespace ferry::xnnpack
