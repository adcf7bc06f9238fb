#include "packer/port_encodings.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kQuantize = "quantized_decomposed::quantize_per_tensor.out";
constexpr std::string_view kDequantize = "quantized_decomposed::dequantize_per_tensor.out";
// Places of the arguments that both have: input, scale, zero point, least and greatest code, dtype.
constexpr size_t kInput = 0, kScale = 1, kZeroPoint = 2, kLeast = 3, kGreatest = 4;
constexpr size_t kQuantizeOut = 6;

struct Codes {
  Encoding encoding;
  int64_t least = 0, greatest = 0;
  bool operator==(const Codes&) const = default;
};

std::string text_of(const Codes& codes) {
  return fmt::format("(scale {}, zero point {}, codes {} to {})", codes.encoding.scale,
                     codes.encoding.zero_point, codes.least, codes.greatest);
}

template <class T>
std::optional<T> literal(const pte::Method& method, int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= method.values.size()) return std::nullopt;
  const T* value = std::get_if<T>(&method.values[static_cast<size_t>(index)]);
  return value == nullptr ? std::nullopt : std::optional<T>(*value);
}

std::optional<Codes> codes_of(const pte::Method& method, const pte::KernelCall& call) {
  const auto scale = literal<double>(method, call.args[kScale]);
  const auto zero_point = literal<int64_t>(method, call.args[kZeroPoint]);
  const auto least = literal<int64_t>(method, call.args[kLeast]);
  const auto greatest = literal<int64_t>(method, call.args[kGreatest]);
  if (!scale || !zero_point || !least || !greatest) return std::nullopt;
  return Codes{{*scale, *zero_point}, *least, *greatest};
}

class Encodings {
 public:
  Encodings(const pte::Method& method, const StatedValues& stated)
      : method_(method), stated_(stated) {}

  Status set(ManifestMethod& ports) const {
    size_t keys = 0, values = 0;
    for (size_t i = 0; i < ports.inputs.size(); ++i) {
      ManifestPort& port = ports.inputs[i];
      if (!is_encoded(port.dtype)) continue;
      const std::optional<Codes> stated = FERRY_TRY(stated_cache(port, keys, values));
      FERRY_RETURN_IF_ERROR(set_port(port, method_.inputs[i], kDequantize, kInput, stated));
    }
    keys = values = 0;
    for (size_t i = 0; i < ports.outputs.size(); ++i) {
      ManifestPort& port = ports.outputs[i];
      if (!is_encoded(port.dtype)) continue;
      std::optional<Codes> stated = FERRY_TRY(stated_new_columns(port, keys, values));
      if (!stated) stated = FERRY_TRY(stated_codes(port, i));
      FERRY_RETURN_IF_ERROR(set_port(port, method_.outputs[i], kQuantize, kQuantizeOut, stated));
    }
    return {};
  }

 private:
  Failure bad(const ManifestPort& port, const std::string& what) const {
    return bad_input(fmt::format("{}: method {}: {} is {} {}", stated_.file(), quoted(method_.name),
                                 port.name, dtype_name(port.dtype), what));
  }

  // `place`: which argument of `op` the port is.
  Status set_port(ManifestPort& port, int32_t value, std::string_view op, size_t place,
                  std::optional<Codes> codes) const {
    if (!is_encoded(port.dtype)) return {};
    for (const pte::Instruction& instruction : method_.instructions) {
      const auto* call = std::get_if<pte::KernelCall>(&instruction);
      if (call == nullptr || call->args.size() <= kQuantizeOut || call->args[place] != value ||
          method_.operators[static_cast<size_t>(call->op)].full_name() != op) {
        continue;
      }
      const std::optional<Codes> found = codes_of(method_, *call);
      if (!found) continue;
      if (codes && *codes != *found) {
        return bad(port,
                   fmt::format("with two encodings: {} and {}", text_of(*codes), text_of(*found)));
      }
      codes = found;
    }
    if (!codes) return bad(port, "and nothing states what its codes stand for");
    if (!codes->encoding.fits(port.dtype) || codes->least != 0 ||
        codes->greatest != largest_code(port.dtype)) {
      return bad(port, fmt::format("with an encoding that does not fit: {}", text_of(*codes)));
    }
    port.encoding = codes->encoding;
    return {};
  }

  // The caches of kv_forward, in programs whose prefill_forward has encodings of its own. `keys`
  // and `values` count the ports of both kinds.
  Result<std::optional<Codes>> stated_cache(const ManifestPort& port, size_t& keys,
                                            size_t& values) const {
    if (is_layer_port(port.name, kKCachePort)) return stated_pair(port, "k", "input", keys++);
    if (is_layer_port(port.name, kVCachePort)) return stated_pair(port, "v", "input", values++);
    return std::optional<Codes>();
  }

  // The same of the new columns of prefill_forward.
  Result<std::optional<Codes>> stated_new_columns(const ManifestPort& port, size_t& keys,
                                                  size_t& values) const {
    if (is_layer_port(port.name, kNewKPort)) return stated_pair(port, "k", "output", keys++);
    if (is_layer_port(port.name, kNewVPort)) return stated_pair(port, "v", "output", values++);
    return std::optional<Codes>();
  }

  // Inputs are stated of kv_forward, outputs of prefill_forward.
  Result<std::optional<Codes>> stated_pair(const ManifestPort& port, const char* tensor,
                                           const std::string& side, size_t index) const {
    if (method_.name != (side == "input" ? kKvForwardMethod : kPrefillForwardMethod)) {
      return std::optional<Codes>();
    }
    const std::string name = fmt::format("get_{}_scale_{}_{}", tensor, side, index);
    const auto scale = FERRY_TRY(stated_.real(name));
    const auto zero_point =
        FERRY_TRY(stated_.integer(fmt::format("get_{}_zero_point_{}_{}", tensor, side, index)));
    if (!scale && !zero_point) return std::optional<Codes>();
    if (!scale || !zero_point) {
      return bad(port, fmt::format("with {} of its encoding only",
                                   scale ? "the scale" : "the zero point"));
    }
    return std::optional(Codes{{*scale, *zero_point}, 0, largest_code(port.dtype)});
  }

  // What constant methods say of output `index`; logits come first.
  Result<std::optional<Codes>> stated_codes(const ManifestPort& port, size_t index) const {
    if (port.name == kLogitsPort) return stated_logits(port);
    const std::string name = fmt::format("get_kv_output_{}_quant_attr", index - 1);
    const auto values = FERRY_TRY(stated_.list(name));
    if (!values) return std::optional<Codes>();
    constexpr size_t kNumbers = 4;
    if (values->size() < kNumbers) return stated_.bad(name, "does not give an encoding");
    const auto* scale = std::get_if<double>(&(*values)[0]);
    const auto* zero_point = std::get_if<int64_t>(&(*values)[1]);
    const auto* least = std::get_if<int64_t>(&(*values)[2]);
    const auto* greatest = std::get_if<int64_t>(&(*values)[3]);
    if (scale == nullptr || zero_point == nullptr || least == nullptr || greatest == nullptr) {
      return stated_.bad(name, "does not give an encoding");
    }
    return std::optional(Codes{{*scale, *zero_point}, *least, *greatest});
  }

  Result<std::optional<Codes>> stated_logits(const ManifestPort& port) const {
    const auto scale = FERRY_TRY(stated_.real("get_logits_scale"));
    const auto zero_point = FERRY_TRY(stated_.integer("get_logits_zero_point"));
    if (!scale || !zero_point) return std::optional<Codes>();
    return std::optional(Codes{{*scale, *zero_point}, 0, largest_code(port.dtype)});
  }

  const pte::Method& method_;
  const StatedValues& stated_;
};

}  // namespace

Status set_port_encodings(const pte::Method& method, const StatedValues& stated,
                          ManifestMethod& ports) {
  return Encodings(method, stated).set(ports);
}

}  // namespace ferry::packer
