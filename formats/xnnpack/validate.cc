// Checks what a FlatBuffers verifier cannot know about the values of a graph.
#include "formats/xnnpack/validate.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "core/checked.h"
#include "core/text.h"
#include "formats/xnnpack/node_check.h"

namespace ferry::xnnpack {

namespace {

constexpr uint64_t kMaxValueBytes = uint64_t{1} << 48;

// The meaning and the size of the codes of a datatype.
struct DatatypeInfo {
  unsigned bits = 0;        // 0 if the size is unknown, or only the backend makes such values
  size_t quantization = 0;  // index of the alternative in Quantization
};

DatatypeInfo info_of(Datatype datatype) {
  constexpr size_t kPlain = 0, kTensor = 1, kChannel = 2, kGroup = 3, kToken = 4;
  switch (datatype) {
    case Datatype::kF32:
    case Datatype::kI32:
      return {32, kPlain};
    case Datatype::kF16:
    case Datatype::kBF16:
      return {16, kPlain};
    case Datatype::kQInt8:
    case Datatype::kQUInt8:
      return {8, kTensor};
    case Datatype::kQInt32:
      return {32, kTensor};
    case Datatype::kQCInt8:
      return {8, kChannel};
    case Datatype::kQCInt32:
      return {32, kChannel};
    case Datatype::kQCInt4:
      return {4, kChannel};
    case Datatype::kQBInt4:
      return {4, kGroup};
    case Datatype::kQDInt8:
      return {8, kToken};
    case Datatype::kQPInt8:
    case Datatype::kPF32:
      break;
  }
  return {};
}

class ValueCheck {
 public:
  ValueCheck(const Graph& graph, const std::string& file) : graph_(graph), file_(file) {}

  Status run() {
    if (graph_.constants.empty() || graph_.constants[0] != Constant{}) {
      return bad_input(file_ + ": constant 0 is no placeholder");
    }
    for (const Value& value : graph_.values) {
      value_ = &value;
      FERRY_RETURN_IF_ERROR(check_type());
      FERRY_RETURN_IF_ERROR(check_quantization());
      FERRY_RETURN_IF_ERROR(check_data());
    }
    return check_externals();
  }

 private:
  Failure error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code, fmt::format("{}: value {}: {}", file_, value_->id, what));
  }

  Status check_type() const {
    if (value_->id == kNone) return error("an id that stands for no value");
    const std::string name = datatype_name(value_->datatype);
    const auto [bits, quantization] = info_of(value_->datatype);
    if (bits == 0) return error(name, ErrorCode::kUnsupported);
    if (value_->quantization.index() != quantization) {
      return error(name + " with a quantisation that does not belong to it");
    }
    if (value_->dims.size() > kMaxRank) return error(fmt::format("rank {}", value_->dims.size()));
    for (uint32_t dim : value_->dims) {
      if (dim == 0) return error("a dimension of 0");
    }
    if (bits == 4 && (value_->dims.empty() || value_->dims.back() % 2 != 0)) {
      return error("rows of an odd number of 4-bit codes");
    }
    const auto bytes = value_bytes(*value_);
    if (!bytes || *bytes > kMaxValueBytes) return error("its size overflows");
    return {};
  }

  Status check_quantization() const {
    if (const auto* q = std::get_if<PerTensor>(&value_->quantization)) return check_tensor(*q);
    if (const auto* q = std::get_if<PerChannel>(&value_->quantization)) return check_channel(*q);
    if (const auto* q = std::get_if<PerChannelGroup>(&value_->quantization)) return check_group(*q);
    if (const auto* q = std::get_if<PerToken>(&value_->quantization)) return check_token(*q);
    return {};
  }

  Status check_tensor(const PerTensor& q) const {
    if (!(q.scale > 0) || !std::isnormal(q.scale)) return error("a scale that is not positive");
    const bool is_signed = value_->datatype == Datatype::kQInt8;
    const bool is_byte = is_signed || value_->datatype == Datatype::kQUInt8;
    const int32_t lowest = is_signed ? -128 : 0, highest = is_signed ? 127 : is_byte ? 255 : 0;
    if (q.zero_point >= lowest && q.zero_point <= highest) return {};
    return error(fmt::format("zero point {}", q.zero_point));
  }

  Status check_channel(const PerChannel& q) const {
    if (q.channel_dim < 0 || static_cast<size_t>(q.channel_dim) >= value_->dims.size()) {
      return error(fmt::format("channels in dimension {}", q.channel_dim));
    }
    const uint64_t channels = value_->dims[static_cast<size_t>(q.channel_dim)];
    return check_scales(q.scales, q.num_scales, channels, sizeof(float));
  }

  Status check_group(const PerChannelGroup& q) const {
    if (q.channel_dim != 0 || value_->dims.size() != 2) {
      return error("groups of a value that is no matrix of rows");
    }
    const uint32_t columns = value_->dims[1];
    if (q.group_size == 0 || q.group_size % kGroupMultiple != 0) {
      return error(
          fmt::format("groups of {}, which is no multiple of {}", q.group_size, kGroupMultiple));
    }
    if (columns % q.group_size != 0) {
      return error(fmt::format("rows of {} in groups of {}", columns, q.group_size));
    }
    const uint64_t groups = uint64_t{value_->dims[0]} * (columns / q.group_size);
    return check_scales(q.scales, q.num_scales, groups, sizeof(uint16_t));
  }

  Status check_scales(uint32_t constant, uint64_t stated, uint64_t needed, uint64_t size) const {
    if (stated != needed) return error(fmt::format("{} scales, expected {}", stated, needed));
    return check_constant(constant, needed * size, "scales");
  }

  Status check_token(const PerToken& q) const {
    if (value_->constant != 0 || value_->external != kNone) {
      return error("quantised at run time, but not made at run time");
    }
    if (q.num_nonbatch_dims >= 1 &&
        static_cast<size_t>(q.num_nonbatch_dims) <= value_->dims.size()) {
      return {};
    }
    return error(
        fmt::format("{} dimensions of rows, of {}", q.num_nonbatch_dims, value_->dims.size()));
  }

  Status check_constant(uint32_t constant, uint64_t bytes, const char* what) const {
    if (constant == 0 || constant >= graph_.constants.size()) {
      return error(fmt::format("{} in constant {} of {}", what, constant, graph_.constants.size()));
    }
    const uint64_t there = graph_.constants[constant].bytes;
    if (there == bytes) return {};
    return error(fmt::format("{} of {} bytes, constant {} has {}", what, bytes, constant, there));
  }

  Status check_data() const {
    if (value_->is_input && value_->is_output) {
      return error("input and output at once", ErrorCode::kUnsupported);
    }
    if ((value_->is_input || value_->is_output) != (value_->external != kNone)) {
      return error("an external id and flags that contradict each other");
    }
    if (value_->constant == 0) return {};
    if (value_->external != kNone) return error("a constant is an argument");
    return check_constant(value_->constant, *value_bytes(*value_), "data");
  }

  // Checks that each position occurs once, and that inputs come first.
  Status check_externals() {
    if (graph_.num_externals > kMaxExternals) {
      return bad_input(fmt::format("{}: {} arguments", file_, graph_.num_externals));
    }
    std::vector<const Value*> at(graph_.num_externals, nullptr);
    for (const Value& value : graph_.values) {
      value_ = &value;
      if (value.external == kNone) continue;
      if (value.external >= at.size()) {
        return error(fmt::format("argument {} of {}", value.external, at.size()));
      }
      if (at[value.external]) return error(fmt::format("argument {} again", value.external));
      at[value.external] = &value;
    }
    return check_order(at);
  }

  Status check_order(const std::vector<const Value*>& at) const {
    for (size_t i = 0; i < at.size(); ++i) {
      if (!at[i]) return bad_input(fmt::format("{}: argument {} is no value", file_, i));
      if (i > 0 && at[i]->is_input && at[i - 1]->is_output) {
        return bad_input(fmt::format("{}: argument {} is an input after an output", file_, i));
      }
    }
    return {};
  }

  const Graph& graph_;
  const std::string& file_;
  const Value* value_ = nullptr;  // the value that is being checked
};

}  // namespace

std::optional<uint64_t> value_bytes(const Value& value) {
  const unsigned bits = info_of(value.datatype).bits;
  if (bits == 0) return std::nullopt;
  std::optional<uint64_t> total = bits;
  for (uint32_t dim : value.dims) {
    if (total) total = checked_mul<uint64_t>(*total, dim);
  }
  if (!total) return std::nullopt;
  return *total / 8;
}

Status validate_graph(const Graph& graph, const std::string& name) {
  FERRY_RETURN_IF_ERROR(ValueCheck(graph, name).run());
  const ValueTable values(graph);
  if (!values.ids_are_unique(graph)) return bad_input(name + ": two values have one id");
  return check_nodes(graph, values, name);
}

namespace {

using Bytes = std::span<const std::byte>;

// Returns the index of the first scale that is not positive and normal, or SIZE_MAX if all are.
// Positive normal numbers are the codes from the lowest bit of the exponent up to infinity.
template <class Word, Word kSmallest, Word kInfinity>
size_t find_wrong_scale(Bytes bytes) {
  const auto is_wrong = [&](size_t i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
    return static_cast<Word>(word - kSmallest) >= static_cast<Word>(kInfinity - kSmallest);
  };
  const size_t count = bytes.size() / sizeof(Word);
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += is_wrong(i);
  if (wrong == 0) return SIZE_MAX;
  size_t first = 0;
  while (!is_wrong(first)) ++first;
  return first;
}

constexpr auto kFindInF32 = find_wrong_scale<uint32_t, 0x00800000, 0x7f800000>;
constexpr auto kFindInBF16 = find_wrong_scale<uint16_t, 0x0080, 0x7f80>;

std::string describe(const Constant& constant) {
  return constant.key.empty() ? fmt::format("constant at {}", constant.offset)
                              : fmt::format("named data {}", quoted(constant.key));
}

}  // namespace

Result<Bytes> constant_bytes(const Constant& constant, Bytes blob, const NamedLookup& lookup,
                             const std::string& name) {
  if (constant.key.empty()) return blob.subspan(constant.offset, constant.bytes);
  const std::optional<Bytes> bytes = lookup(constant.key);
  if (!bytes) return bad_input(fmt::format("{}: {} is nowhere", name, describe(constant)));
  if (bytes->size() == constant.bytes) return *bytes;
  return bad_input(fmt::format("{}: {} bytes, expected {} ({})", name, bytes->size(),
                               constant.bytes, describe(constant)));
}

Status check_constants(const Graph& graph, Bytes blob, const NamedLookup& lookup,
                       const std::string& name) {
  std::vector<Bytes> constants(1);
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    constants.push_back(FERRY_TRY(constant_bytes(graph.constants[i], blob, lookup, name)));
  }
  for (const Value& value : graph.values) {
    const auto* channel = std::get_if<PerChannel>(&value.quantization);
    const auto* group = std::get_if<PerChannelGroup>(&value.quantization);
    if (!channel && !group) continue;
    const uint32_t index = channel ? channel->scales : group->scales;
    const size_t wrong = channel ? kFindInF32(constants[index]) : kFindInBF16(constants[index]);
    if (wrong == SIZE_MAX) continue;
    return bad_input(fmt::format("{}: scale {} is not positive and normal ({})", name, wrong,
                                 describe(graph.constants[index])));
  }
  return {};
}

}  // namespace ferry::xnnpack
