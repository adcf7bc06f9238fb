#include "runner/static_program/static_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/checked.h"
#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::runner {
namespace {

using packer::ManifestPort;

// Returns the layer n of an input or output with the name "PREFIXn".
std::optional<int64_t> layer_of(std::string_view name, std::string_view prefix) {
  if (!is_layer_port(name, prefix)) return std::nullopt;
  int32_t layer = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + prefix.size(), end, layer);
  if (error != std::errc() || rest != end) return std::nullopt;
  return layer;
}

std::string type_of(const ManifestPort& port) {
  return fmt::format("{}{}", dtype_name(port.dtype), to_string(port.shape));
}

class PortReader {
 public:
  PortReader(std::span<const ManifestPort> inputs, std::span<const ManifestPort> outputs,
             const std::string& method)
      : inputs_(inputs), outputs_(outputs), method_(method) {}

  Result<StaticPorts> read() {
    FERRY_RETURN_IF_ERROR(read_tokens());
    FERRY_RETURN_IF_ERROR(read_masks());
    FERRY_RETURN_IF_ERROR(read_logits());
    for (size_t i = 0; i < inputs_.size(); ++i) FERRY_RETURN_IF_ERROR(read_input(i));
    if (out_.caches.empty()) {
      return bad("has no KV cache: no input is named k_cache_0 or the like");
    }
    std::ranges::stable_sort(out_.caches, [](const auto& a, const auto& b) {
      const auto key = [](const StaticPorts::Cache& c) {
        return std::pair(!c.tensor.is_key, c.tensor.layer);
      };
      return key(a) < key(b);
    });
    FERRY_RETURN_IF_ERROR(check_layers());
    return std::move(out_);
  }

 private:
  Failure bad(const std::string& what) const {
    return bad_input(fmt::format("{} {}", method_, what));
  }
  Failure wrong(const ManifestPort& port, const std::string& expected) const {
    return bad(
        fmt::format("has {} as {}, expected {}", quoted(port.name), type_of(port), expected));
  }

  static std::optional<size_t> find(std::span<const ManifestPort> ports, std::string_view name) {
    const auto found = std::ranges::find(ports, name, &ManifestPort::name);
    if (found == ports.end()) return std::nullopt;
    return static_cast<size_t>(found - ports.begin());
  }

  Status read_tokens() {
    const auto at = find(inputs_, kTokensPort);
    if (!at) return bad(fmt::format("has no input {}", quoted(kTokensPort)));
    const ManifestPort& port = inputs_[*at];
    if (port.dtype != DType::kI32 || port.shape.size() != 2 || port.shape[0] != 1 ||
        port.shape[1] < 1) {
      return wrong(port, "i32[1, AR]");
    }
    out_.tokens = *at;
    out_.ar = port.shape[1];
    return {};
  }

  Status read_masks() {
    FERRY_RETURN_IF_ERROR(read_mask(kAttentionMaskPort, out_.attention_mask));
    FERRY_RETURN_IF_ERROR(read_mask(kWindowMaskPort, out_.window_mask));
    if (out_.cl > 0) return {};
    return bad(fmt::format("has no input {}", quoted(kAttentionMaskPort)));
  }

  Status read_mask(std::string_view name, std::optional<size_t>& at) {
    at = find(inputs_, name);
    if (!at) return {};
    const ManifestPort& port = inputs_[*at];
    const bool shaped =
        port.shape.size() == 4 && port.shape == Shape{1, 1, out_.ar, port.shape.back()};
    if (!shaped || port.shape[3] <= out_.ar || (out_.cl > 0 && port.shape[3] != out_.cl)) {
      return wrong(port, out_.cl > 0
                             ? fmt::format("a shape of {}", to_string({1, 1, out_.ar, out_.cl}))
                             : fmt::format("[1, 1, {}, CL] with CL above {}", out_.ar, out_.ar));
    }
    out_.cl = port.shape[3];
    return {};
  }

  Status read_logits() {
    const auto at = find(outputs_, kLogitsPort);
    if (!at) return bad(fmt::format("has no output {}", quoted(kLogitsPort)));
    const ManifestPort& port = outputs_[*at];
    if (port.shape.size() != 3 || port.shape[0] != 1 || port.shape[1] != out_.ar ||
        port.shape[2] < 1) {
      return wrong(port, fmt::format("[1, {}, V]", out_.ar));
    }
    if (!is_castable(port.dtype) && !is_encoded(port.dtype)) {
      return unsupported(port, "logits");
    }
    FERRY_RETURN_IF_ERROR(check_encoding(port));
    out_.logits = *at;
    out_.vocab = port.shape[2];
    return {};
  }

  Failure unsupported(const ManifestPort& port, std::string_view what) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has {} as {}; supported for {} are f32, f16, bf16, u16 and u8",
                            method_, quoted(port.name), type_of(port), what));
  }

  Status check_encoding(const ManifestPort& port) const {
    if (is_encoded(port.dtype) ? port.encoding && port.encoding->fits(port.dtype)
                               : !port.encoding) {
      return {};
    }
    return bad(fmt::format(
        "has {} as {} {}", quoted(port.name), dtype_name(port.dtype),
        port.encoding ? "with an encoding that is not one of that dtype" : "without an encoding"));
  }

  Status read_input(size_t index) {
    const ManifestPort& port = inputs_[index];
    if (index == out_.tokens || index == out_.attention_mask || index == out_.window_mask) {
      return {};
    }
    if (port.name == kInputPosPort) return read_positions(index);
    if (port.name == kLayerTokensPort) {
      const bool shaped = port.dtype == DType::kI32 && port.shape == Shape{1, out_.ar};
      return shaped ? Status() : wrong(port, fmt::format("i32{}", to_string({1, out_.ar})));
    }
    if (const auto layer = layer_of(port.name, kKCachePort)) return read_cache(index, *layer, true);
    if (const auto layer = layer_of(port.name, kVCachePort)) {
      return read_cache(index, *layer, false);
    }
    if (layer_of(port.name, kConvStatePort) || layer_of(port.name, kRecurrentStatePort)) {
      return read_state(index);
    }
    return bad(fmt::format("has an input {} that no runner knows", quoted(port.name)));
  }

  Status read_positions(size_t index) {
    const ManifestPort& port = inputs_[index];
    if (port.dtype != DType::kI32 || port.shape != Shape{1, out_.ar}) {
      return wrong(port, fmt::format("i32{}", to_string({1, out_.ar})));
    }
    out_.input_pos = index;
    return {};
  }

  Status read_cache(size_t index, int64_t layer, bool is_key) {
    const ManifestPort& port = inputs_[index];
    const int64_t columns = out_.cl - out_.ar;
    const auto& s = port.shape;
    const bool shaped = s.size() == 4 && s[0] == 1 && s[1] > 0 && s[2] > 0 && s[3] > 0 &&
                        s[is_key ? 3 : 2] == columns;
    if (!shaped) {
      return wrong(port, is_key ? fmt::format("[1, G, D, {}]", columns)
                                : fmt::format("[1, G, {}, D]", columns));
    }
    if (!is_castable(port.dtype) && !is_encoded(port.dtype)) {
      return unsupported(port, fmt::format("the cache of layer {}", layer));
    }
    if (out_.caches.empty()) {
      out_.cache_dtype = port.dtype;
      first_cache_ = port.name;
    } else if (port.dtype != out_.cache_dtype) {
      return bad(fmt::format("has caches of several dtypes: {} of layer {} is {}, {} is {}",
                             quoted(port.name), layer, dtype_name(port.dtype), quoted(first_cache_),
                             dtype_name(out_.cache_dtype)));
    }
    FERRY_RETURN_IF_ERROR(check_encoding(port));
    StaticPorts::Cache cache;
    cache.tensor = {layer, is_key, s[1], s[is_key ? 2 : 3], port.encoding};
    cache.input = index;
    FERRY_RETURN_IF_ERROR(read_new_columns(port, cache));
    out_.caches.push_back(cache);
    return {};
  }

  Status read_new_columns(const ManifestPort& input, StaticPorts::Cache& cache) const {
    const CacheTensor& t = cache.tensor;
    const std::string name = fmt::format("{}{}", t.is_key ? kNewKPort : kNewVPort, t.layer);
    const auto at = find(outputs_, name);
    if (!at) return bad(fmt::format("has an input {} but no output {}", quoted(input.name), name));
    const ManifestPort& port = outputs_[*at];
    const Shape expected =
        t.is_key ? Shape{1, t.heads, t.head_dim, out_.ar} : Shape{1, t.heads, out_.ar, t.head_dim};
    if (port.dtype != input.dtype || port.shape != expected) {
      return wrong(port, fmt::format("{}{} for {} of layer {}", dtype_name(input.dtype),
                                     to_string(expected), quoted(input.name), t.layer));
    }
    FERRY_RETURN_IF_ERROR(check_encoding(port));
    cache.output = *at;
    cache.output_encoding = port.encoding;
    return {};
  }

  // A state output is the next call's input unchanged, so only zeros need a meaning.
  Status read_state(size_t index) {
    const ManifestPort& port = inputs_[index];
    const auto numel = checked_numel(port.shape);
    const auto bytes = numel ? checked_mul(*numel, int64_t{4}) : std::nullopt;
    if (port.dtype != DType::kF32 || !bytes) return wrong(port, "f32");
    const std::string name = fmt::format("{}{}", kNewStatePrefix, port.name);
    const auto at = find(outputs_, name);
    if (!at) return bad(fmt::format("has an input {} but no output {}", quoted(port.name), name));
    if (outputs_[*at].dtype != port.dtype || outputs_[*at].shape != port.shape) {
      return wrong(outputs_[*at], fmt::format("{} as {}", type_of(port), quoted(port.name)));
    }
    out_.states.push_back({port.name, index, *at, static_cast<uint64_t>(*bytes)});
    return {};
  }

  // Keys and values of a layer have equal heads. Keys are the first half.
  Status check_layers() const {
    const size_t layers = out_.caches.size() / 2;
    for (size_t i = 0; i < out_.caches.size(); ++i) {
      const CacheTensor& tensor = out_.caches[i].tensor;
      const size_t other = i < layers ? i + layers : i - layers;
      const bool paired = other < out_.caches.size() &&
                          out_.caches[other].tensor.layer == tensor.layer &&
                          out_.caches[other].tensor.is_key != tensor.is_key;
      if (!paired) {
        return bad(fmt::format("has {} of layer {} without {}", tensor.is_key ? "keys" : "values",
                               tensor.layer, tensor.is_key ? "values" : "keys"));
      }
      const CacheTensor& pair = out_.caches[other].tensor;
      if (pair.heads != tensor.heads || pair.head_dim != tensor.head_dim) {
        return bad(fmt::format("has {}{} of {} heads of {} elements, and {}{} of {} of {}",
                               kKCachePort, tensor.layer, tensor.heads, tensor.head_dim,
                               kVCachePort, tensor.layer, pair.heads, pair.head_dim));
      }
    }
    return {};
  }

  std::span<const ManifestPort> inputs_, outputs_;
  const std::string& method_;
  StaticPorts out_;
  std::string first_cache_;
};

std::string cache_name(const CacheTensor& tensor) {
  return fmt::format("{}{}", tensor.is_key ? kKCachePort : kVCachePort, tensor.layer);
}

Failure differ(const std::string& what) {
  return bad_input(
      fmt::format("{} and {} differ in {}", kKvForwardMethod, kPrefillForwardMethod, what));
}

}  // namespace

Result<StaticPorts> StaticPorts::read(std::span<const ManifestPort> inputs,
                                      std::span<const ManifestPort> outputs,
                                      const std::string& method) {
  return PortReader(inputs, outputs, method).read();
}

Status check_same_state(const StaticPorts& kv, const StaticPorts& prefill) {
  if (kv.cl != prefill.cl) return differ("the length of their context");
  if (kv.vocab != prefill.vocab) return differ("the width of their logits");
  if (kv.cache_dtype != prefill.cache_dtype) return differ("the dtype of their caches");
  if (kv.caches.size() != prefill.caches.size()) return differ("the number of their caches");
  for (size_t i = 0; i < kv.caches.size(); ++i) {
    const CacheTensor &a = kv.caches[i].tensor, &b = prefill.caches[i].tensor;
    if (a.layer != b.layer || a.heads != b.heads || a.head_dim != b.head_dim) {
      return differ(fmt::format("{} of layer {}", cache_name(a), a.layer));
    }
  }
  if (kv.states.size() != prefill.states.size()) return differ("the number of their states");
  for (const StaticPorts::State& state : kv.states) {
    const auto found = std::ranges::find(prefill.states, state.name, &StaticPorts::State::name);
    if (found == prefill.states.end() || found->bytes != state.bytes) return differ(state.name);
  }
  return {};
}

bool same_encodings(const StaticPorts& kv, const StaticPorts& prefill) {
  return std::ranges::equal(
      kv.caches, prefill.caches, {}, [](const StaticPorts::Cache& c) { return c.tensor.encoding; },
      [](const StaticPorts::Cache& c) { return c.tensor.encoding; });
}

}  // namespace ferry::runner
