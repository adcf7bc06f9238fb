#include "packer/loose_examination.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/program_interface.h"
#include "core/result.h"
#include "core/text.h"
#include "formats/pte/program.h"
#include "packer/bundle_examination.h"
#include "packer/manifest.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kQuantize = "quantized_decomposed::quantize_per_tensor.out";
constexpr std::string_view kDequantize = "quantized_decomposed::dequantize_per_tensor.out";
// Indices of arguments that quantize and dequantize operators share: input, scale, zero point,
// least code, greatest code, dtype.
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

  // Sets an encoding from the arguments of `op`. `place` is the index of the argument that is the
  // input or output of the program.
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

  // Returns the codes of the next cache of kv_forward, for programs whose prefill_forward has
  // encodings of its own. `keys` and `values` count the inputs or outputs of both kinds.
  Result<std::optional<Codes>> stated_cache(const ManifestPort& port, size_t& keys,
                                            size_t& values) const {
    if (is_layer_port(port.name, kKCachePort)) return stated_pair(port, "k", "input", keys++);
    if (is_layer_port(port.name, kVCachePort)) return stated_pair(port, "v", "input", values++);
    return std::optional<Codes>();
  }

  // Returns the codes of the new columns that prefill_forward returns.
  Result<std::optional<Codes>> stated_new_columns(const ManifestPort& port, size_t& keys,
                                                  size_t& values) const {
    if (is_layer_port(port.name, kNewKPort)) return stated_pair(port, "k", "output", keys++);
    if (is_layer_port(port.name, kNewVPort)) return stated_pair(port, "v", "output", values++);
    return std::optional<Codes>();
  }

  // Returns the codes of a pair of input and output. Constant methods state inputs for kv_forward
  // and outputs for prefill_forward.
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

  // Returns the codes that constant methods state for output `index`. Logits come first.
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

// Sets the encoding of every u8 and u16 input and output of a static text decoder. The inputs and
// outputs have their names and belong to `method`. Keys and values are in the order of their
// outputs, keys first. kBadInput, with file, method and name, if no encoding is stated, if two
// statements differ, or if codes do not span their dtype.
Status set_port_encodings(const pte::Method& method, const StatedValues& stated,
                          ManifestMethod& ports) {
  return Encodings(method, stated).set(ports);
}

// Gives names to the inputs and outputs of one method.
class PortNamer {
 public:
  PortNamer(const pte::Method& method, const std::string& file)
      : method_(method), label_(fmt::format("{}: method {}", file, quoted(method.name))) {
    out_.name = method.name;
  }

  Status read() {
    FERRY_RETURN_IF_ERROR(read_ports(method_.inputs, "input", out_.inputs));
    return read_ports(method_.outputs, "output", out_.outputs);
  }

  Failure bad(const std::string& what) const {
    return bad_input(fmt::format("{}: {}", label_, what));
  }
  // Returns the error for an input or output that is well formed, but differs from what Ferry
  // builds.
  Failure wrong(std::string_view kind, size_t index, const ManifestPort& port,
                std::string_view expected) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} {} is {}; expected {}", label_, kind, index,
                            describe_type(port.dtype, port.shape), expected));
  }
  Status expect_counts(size_t inputs, size_t outputs, std::string_view signature) const {
    if (out_.inputs.size() == inputs && out_.outputs.size() == outputs) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} inputs and {} outputs; expected {}", label_, out_.inputs.size(),
                            out_.outputs.size(), signature));
  }

  // Names input 0: tokens of dtype `ids`, or embeddings. Sets call_ and, for embeddings, the width.
  Status name_first(DType ids, std::string_view expected) {
    if (out_.inputs.empty()) return bad("has no inputs");
    ManifestPort& port = out_.inputs[0];
    const bool tokens = port.dtype == ids && port.shape.size() == 2;
    const bool embeddings = port.dtype == DType::kF32 && port.shape.size() == 3;
    const bool sized = (tokens || embeddings) && std::ranges::min(port.shape) >= 1;
    if (!sized || port.shape[0] != 1) return wrong("input", 0, port, expected);
    port.name = tokens ? kTokensPort : kEmbeddingsPort;
    call_ = port.shape[1];
    return {};
  }

  // Checks a program that takes any number of tokens up to the shape, or exactly one token.
  Status expect_any_length(size_t index) const {
    if (call_ == 1) return {};
    const auto& tensor =
        std::get<pte::Tensor>(method_.values[static_cast<size_t>(method_.inputs[index])]);
    if (tensor.dynamism == pte::Dynamism::kDynamicBound) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: input {} has a fixed length of {} tokens; expected a dynamic "
                            "length, or 1",
                            label_, index, call_));
  }

  const pte::Method& method_;
  std::string label_;
  ManifestMethod out_;
  int64_t call_ = 0;  // tokens per call

 private:
  Status read_ports(const std::vector<int32_t>& values, std::string_view kind,
                    std::vector<ManifestPort>& ports) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto* tensor =
          std::get_if<pte::Tensor>(&method_.values[static_cast<size_t>(values[i])]);
      if (tensor == nullptr) return bad(fmt::format("{} {} is no tensor", kind, i));
      ports.push_back({{}, tensor->dtype, Shape(tensor->sizes.begin(), tensor->sizes.end())});
    }
    return {};
  }
};

class StaticNamer : public PortNamer {
 public:
  StaticNamer(const pte::Method& method, const StatedValues& stated)
      : PortNamer(method, stated.file()), stated_(stated) {}

  Result<ManifestMethod> run(std::optional<size_t> caches) {
    FERRY_RETURN_IF_ERROR(read());
    FERRY_RETURN_IF_ERROR(
        name_first(DType::kI32, "tokens i32 [1, AR] or embeddings f32 [1, AR, E]"));
    FERRY_RETURN_IF_ERROR(name_masks());
    FERRY_RETURN_IF_ERROR(name_positions());
    FERRY_RETURN_IF_ERROR(name_logits());
    FERRY_RETURN_IF_ERROR(name_pairs(caches));
    FERRY_RETURN_IF_ERROR(set_port_encodings(method_, stated_, out_));
    return std::move(out_);
  }

 private:
  bool is_positions(const ManifestPort& port) const {
    return port.shape == Shape{1, call_} &&
           (port.dtype == DType::kI32 || port.dtype == DType::kI64);
  }

  // Names one or two masks, up to the first input that holds positions.
  Status name_masks() {
    constexpr size_t kMostMasks = 2;
    for (; next_ < out_.inputs.size() && next_ <= kMostMasks; ++next_) {
      ManifestPort& port = out_.inputs[next_];
      if (is_positions(port)) break;
      const bool shaped = port.shape.size() == 4 && port.shape[0] == 1 && port.shape[1] == 1 &&
                          port.shape[2] == call_ && port.shape[3] > 0;
      if (!shaped) {
        return wrong("input", next_, port, fmt::format("a mask of [1, 1, {}, CL]", call_));
      }
      port.name = next_ == 1 ? kAttentionMaskPort : kWindowMaskPort;
      context_ = port.shape[3];
    }
    if (next_ == 1) return bad("has no attention mask behind its first input");
    const bool window = next_ > kMostMasks;
    if (window == stated_.has(kSlidingWindowMethod)) return {};
    return bad(window
                   ? fmt::format("has two masks, and the program no method {} that states the "
                                 "window of the second",
                                 kSlidingWindowMethod)
                   : fmt::format("has one mask, but the program states a window in {}: expected a "
                                 "second mask",
                                 kSlidingWindowMethod));
  }

  Status name_positions() {
    if (next_ >= out_.inputs.size()) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: has no input_pos and no caches: a prefill that keeps nothing", label_));
    }
    ManifestPort& port = out_.inputs[next_];
    if (port.dtype != DType::kI32 || !is_positions(port)) {
      return wrong("input", next_, port, fmt::format("input_pos i32 [1, {}]", call_));
    }
    port.name = kInputPosPort;
    ++next_;
    return {};
  }

  Status name_logits() {
    if (out_.outputs.empty()) return bad("has no outputs");
    out_.outputs[0].name = kLogitsPort;
    return {};
  }

  // Names the states that a call passes to the next one: input next_ + i becomes output 1 + i.
  Status name_pairs(std::optional<size_t> caches) {
    const size_t pairs = out_.inputs.size() - next_;
    if (pairs == 0 || pairs != out_.outputs.size() - 1) {
      return bad(
          fmt::format("has {} inputs behind input_pos and {} outputs behind the logits; "
                      "expected as many, K of all layers and then V of all layers",
                      pairs, out_.outputs.size() - 1));
    }
    const size_t kept = std::min(caches.value_or(caches_of(pairs)), pairs);
    if (kept == 0 || kept % 2 != 0) {
      return bad(fmt::format("has {} caches; expected K and V of every layer", kept));
    }
    for (size_t i = 0; i < kept; ++i) name_cache(i, kept / 2);
    for (size_t i = kept; i < pairs; ++i) FERRY_RETURN_IF_ERROR(name_state(i, i - kept));
    return {};
  }

  // States follow the caches and have equal shapes before and after a call. Only methods of one
  // token per call have states.
  size_t caches_of(size_t pairs) const {
    if (call_ > 1 || context_ - call_ == call_) return pairs;
    size_t count = pairs;
    while (count > 0 && out_.inputs[next_ + count - 1].shape == out_.outputs[count].shape) --count;
    return count;
  }

  void name_cache(size_t pair, size_t layers) {
    const bool is_key = pair < layers;
    const size_t layer = is_key ? pair : pair - layers;
    out_.inputs[next_ + pair].name = fmt::format("{}{}", is_key ? kKCachePort : kVCachePort, layer);
    out_.outputs[1 + pair].name = fmt::format("{}{}", is_key ? kNewKPort : kNewVPort, layer);
  }

  Status name_state(size_t pair, size_t number) {
    ManifestPort& input = out_.inputs[next_ + pair];
    ManifestPort& output = out_.outputs[1 + pair];
    if (input.dtype != DType::kF32 || input.shape != output.shape) {
      return wrong("input", next_ + pair, input,
                   fmt::format("a state of f32 as output {}", 1 + pair));
    }
    const bool is_conv = input.shape.size() < 4;
    input.name = fmt::format("{}{}", is_conv ? kConvStatePort : kRecurrentStatePort, number);
    output.name = fmt::format("{}{}", kNewStatePrefix, input.name);
    return {};
  }

  const StatedValues& stated_;
  size_t next_ = 1;      // index of the first input without a name
  int64_t context_ = 0;  // number of columns of the masks
};

}  // namespace

const ManifestPort* find_port(const std::vector<ManifestPort>& ports, std::string_view name) {
  const auto found = std::ranges::find(ports, name, &ManifestPort::name);
  return found == ports.end() ? nullptr : &*found;
}

size_t count_caches(const ManifestMethod& method) {
  return static_cast<size_t>(std::ranges::count_if(method.inputs, [](const ManifestPort& port) {
    return is_layer_port(port.name, kKCachePort) || is_layer_port(port.name, kVCachePort);
  }));
}

Result<ManifestMethod> name_stateful_decoder(const pte::Method& method, const std::string& file) {
  constexpr std::string_view kFirst = "tokens i64 [1, T] or embeddings f32 [1, T, E]";
  PortNamer namer(method, file);
  FERRY_RETURN_IF_ERROR(namer.read());
  FERRY_RETURN_IF_ERROR(namer.name_first(DType::kI64, kFirst));
  // A program without caches takes all tokens of the sequence, and no position.
  const bool cached = namer.out_.inputs.size() != 1 || namer.out_.inputs[0].name == kEmbeddingsPort;
  FERRY_RETURN_IF_ERROR(
      namer.expect_counts(cached ? 2 : 1, 1, "(tokens or embeddings, input_pos) -> logits"));
  FERRY_RETURN_IF_ERROR(namer.expect_any_length(0));
  if (cached) {
    ManifestPort& position = namer.out_.inputs[1];
    // The caches of transformers take the position of every token.
    const bool of_each = namer.call_ > 1 && position.shape == Shape{namer.call_};
    if (position.dtype != DType::kI64 || (position.shape != Shape{1} && !of_each)) {
      return namer.wrong("input", 1, position,
                         fmt::format("input_pos i64 [1] or [{}]", namer.call_));
    }
    if (of_each) FERRY_RETURN_IF_ERROR(namer.expect_any_length(1));
    position.name = kInputPosPort;
  }
  ManifestPort& logits = namer.out_.outputs[0];
  const size_t rank = logits.shape.size();
  const bool shaped = (rank == 2 || (rank == 3 && logits.shape[1] == namer.call_)) &&
                      logits.shape[0] == 1 && logits.shape.back() >= 1;
  if (!is_castable(logits.dtype) || !shaped) {
    return namer.wrong("output", 0, logits,
                       fmt::format("logits f32, f16 or bf16 [1, V] or [1, {}, V]", namer.call_));
  }
  logits.name = kLogitsPort;
  return std::move(namer.out_);
}

Result<ManifestMethod> name_static_decoder(const pte::Method& method, const StatedValues& stated,
                                           std::optional<size_t> caches) {
  return StaticNamer(method, stated).run(caches);
}

Result<ManifestMethod> name_token_embedding(const pte::Method& method, DType ids,
                                            const std::string& file) {
  const std::string tokens = fmt::format("tokens {} [1, T]", dtype_name(ids));
  PortNamer namer(method, file);
  FERRY_RETURN_IF_ERROR(namer.read());
  FERRY_RETURN_IF_ERROR(namer.name_first(ids, tokens));
  if (namer.out_.inputs[0].name != kTokensPort) {
    return namer.wrong("input", 0, namer.out_.inputs[0], tokens);
  }
  FERRY_RETURN_IF_ERROR(namer.expect_counts(1, 1, "tokens -> embeddings"));
  ManifestPort& out = namer.out_.outputs[0];
  const bool shaped = out.shape.size() == 3 && out.shape[0] == 1 && out.shape[1] == namer.call_ &&
                      out.shape[2] >= 1;
  if (out.dtype != DType::kF32 || !shaped) {
    return namer.wrong("output", 0, out, fmt::format("embeddings f32 [1, {}, E]", namer.call_));
  }
  out.name = kEmbeddingsPort;
  if (ids == DType::kI64) FERRY_RETURN_IF_ERROR(namer.expect_any_length(0));
  return std::move(namer.out_);
}

Result<ManifestMethod> name_vision_encoder(const pte::Method& method, const std::string& file) {
  PortNamer namer(method, file);
  FERRY_RETURN_IF_ERROR(namer.read());
  FERRY_RETURN_IF_ERROR(namer.expect_counts(1, 1, "pixel_values -> image_features"));
  ManifestPort& in = namer.out_.inputs[0];
  ManifestPort& out = namer.out_.outputs[0];
  if (in.dtype != DType::kF32 || in.shape.size() != 4 || in.shape[0] != 1 || in.shape[1] != 3) {
    return namer.wrong("input", 0, in, "pixel_values f32 [1, 3, H, W]");
  }
  if (out.dtype != DType::kF32 || out.shape.size() != 3 || out.shape[0] != 1) {
    return namer.wrong("output", 0, out, "image_features f32 [1, N, E]");
  }
  in.name = kPixelValuesPort;
  out.name = kImageFeaturesPort;
  return std::move(namer.out_);
}

}  // namespace ferry::packer
