#include "packer/loose_examination.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kContextMethod = "get_max_context_len";
constexpr std::string_view kSequenceMethod = "get_max_seq_len";
constexpr std::string_view kLayersMethod = "get_n_layers";

class Sizes {
 public:
  Sizes(const ManifestProgram& decoder, const StatedValues& stated, Manifest& m)
      : decoder_(decoder), stated_(stated), m_(m) {}

  Status run() {
    FERRY_RETURN_IF_ERROR(check_support());
    FERRY_RETURN_IF_ERROR(set_widths());
    return m_.program_style == kStaticStyle ? set_static() : set_stateful();
  }

 private:
  const ManifestMethod& first() const { return decoder_.methods.front(); }
  static std::string of(std::string_view port, const ManifestMethod& method) {
    return fmt::format("{} of method {}", port, quoted(method.name));
  }

  Status check_support() const {
    const std::optional<int64_t> batch = FERRY_TRY(stated_.integer("get_max_batch_size"));
    if (batch && *batch != 1) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: method get_max_batch_size gives {}; supported is 1",
                              stated_.file(), *batch));
    }
    for (const std::string_view name : {"use_kv_cache", "get_use_kv_cache"}) {
      const std::optional<bool> cached = FERRY_TRY(stated_.boolean(name));
      const bool positions = find_port(first().inputs, kInputPosPort) != nullptr;
      if (cached.value_or(positions) == positions) continue;
      return stated_.bad(name, positions ? "gives false, but there is an input_pos"
                                         : "gives true, but there is no input_pos");
    }
    return {};
  }

  // Every method must have equal widths.
  Status set_widths() {
    m_.vocab_size = find_port(first().outputs, kLogitsPort)->shape.back();
    FERRY_RETURN_IF_ERROR(
        stated_.expect("get_vocab_size", m_.vocab_size, of(kLogitsPort, first())));
    const ManifestPort* embeddings = find_port(first().inputs, kEmbeddingsPort);
    if (embeddings != nullptr) {
      m_.hidden_size = embeddings->shape.back();
      return stated_.expect("get_dim", m_.hidden_size, of(kEmbeddingsPort, first()));
    }
    m_.hidden_size = FERRY_TRY(stated_.integer("get_dim")).value_or(0);
    return m_.hidden_size >= 0 ? Status() : stated_.bad("get_dim", "gives a negative number");
  }

  // -- stateful

  Status set_stateful() {
    m_.prefill_length = first().inputs.front().shape[1];
    const ManifestPort& logits = first().outputs.front();
    m_.all_logits = logits.shape.size() == 3;
    const std::optional<int64_t> sequence = FERRY_TRY(stated_.integer(kSequenceMethod));
    const std::optional<int64_t> context = FERRY_TRY(stated_.integer(kContextMethod));
    if (!context && !sequence) {
      return bad_input(
          fmt::format("{}: has neither a method {} nor a method {}: nothing states "
                      "how long a sequence may be",
                      stated_.file(), kContextMethod, kSequenceMethod));
    }
    m_.context_length = context ? *context : *sequence;
    FERRY_RETURN_IF_ERROR(check_length(kSequenceMethod, sequence));
    FERRY_RETURN_IF_ERROR(check_length(kContextMethod, context));
    m_.num_layers = FERRY_TRY(stated_.integer(kLayersMethod)).value_or(0);
    m_.rope_switch = FERRY_TRY(stated_.integer(kRopeSwitchMethod));
    if (find_port(first().inputs, kInputPosPort) == nullptr) {
      // Every call takes the whole sequence.
      m_.context_length = m_.prefill_length;
      if (m_.rope_switch) return stated_.bad(kRopeSwitchMethod, "is stated without an input_pos");
    }
    if (!m_.rope_switch || (*m_.rope_switch >= 1 && *m_.rope_switch < m_.context_length)) return {};
    return stated_.bad(kRopeSwitchMethod,
                       fmt::format("gives {}, which is not inside of the context of {}",
                                   *m_.rope_switch, m_.context_length));
  }

  // Checks a stated length. A call may be shorter than the stated length, but never longer.
  Status check_length(std::string_view method, std::optional<int64_t> stated) const {
    if (!stated || *stated >= m_.prefill_length) return {};
    return stated_.bad(method,
                       fmt::format("gives {}, but {} has {}", *stated,
                                   of(first().inputs.front().name, first()), m_.prefill_length));
  }

  // -- static

  Status set_static() {
    m_.all_logits = true;
    const ManifestPort& mask = *find_port(first().inputs, kAttentionMaskPort);
    m_.context_length = mask.shape.back();
    FERRY_RETURN_IF_ERROR(
        stated_.expect(kContextMethod, m_.context_length, of(kAttentionMaskPort, first())));
    const std::optional<int64_t> sequence = FERRY_TRY(stated_.integer(kSequenceMethod));
    if (sequence && *sequence > m_.context_length) {
      return stated_.bad(kSequenceMethod,
                         fmt::format("gives {}, but {} has {}", *sequence,
                                     of(kAttentionMaskPort, first()), m_.context_length));
    }
    for (const ManifestMethod& method : decoder_.methods) {
      m_.prefill_length = std::max(m_.prefill_length, method.inputs.front().shape[1]);
    }
    FERRY_RETURN_IF_ERROR(stated_.expect("get_ar_len", first().inputs.front().shape[1],
                                         of(first().inputs.front().name, first())));
    FERRY_RETURN_IF_ERROR(set_layers());
    FERRY_RETURN_IF_ERROR(check_methods_agree());
    return check_caches();
  }

  // Layers that share a cache, and recurrent layers, have no cache of their own.
  Status set_layers() {
    const auto cached = static_cast<int64_t>(count_caches(first()) / 2);
    m_.num_layers = FERRY_TRY(stated_.integer(kLayersMethod)).value_or(cached);
    if (stated_.has("get_n_self_layers")) {
      return stated_.expect("get_n_self_layers", cached, "the K caches of method 'kv_forward'");
    }
    const bool has_states = find_port(first().inputs, "conv_state_0") != nullptr ||
                            find_port(first().inputs, "recurrent_state_0") != nullptr;
    if (has_states && m_.num_layers > cached) return {};
    return stated_.expect(kLayersMethod, cached, "the K caches of method 'kv_forward'");
  }

  Status check_methods_agree() const {
    for (const ManifestMethod& method : decoder_.methods) {
      const int64_t vocab = find_port(method.outputs, kLogitsPort)->shape.back();
      FERRY_RETURN_IF_ERROR(expect_same("the width of the logits", method, vocab, m_.vocab_size));
      const int64_t context = find_port(method.inputs, kAttentionMaskPort)->shape.back();
      FERRY_RETURN_IF_ERROR(
          expect_same("the columns of the mask", method, context, m_.context_length));
      const ManifestPort* embeddings = find_port(method.inputs, kEmbeddingsPort);
      const int64_t width = embeddings == nullptr ? 0 : embeddings->shape.back();
      const bool embedded = find_port(first().inputs, kEmbeddingsPort) != nullptr;
      FERRY_RETURN_IF_ERROR(
          expect_same("the width of the embeddings", method, width, embedded ? m_.hidden_size : 0));
    }
    return {};
  }

  Status expect_same(std::string_view what, const ManifestMethod& method, int64_t here,
                     int64_t there) const {
    if (here == there) return {};
    return bad_input(fmt::format("{}: {} is {} in method {} and {} in method {}", stated_.file(),
                                 what, here, quoted(method.name), there, quoted(first().name)));
  }

  // Checks what is stated for all caches. Decoders check each cache again.
  Status check_caches() const {
    for (const ManifestPort& port : first().inputs) {
      if (!is_layer_port(port.name, kKCachePort) || port.shape.size() != 4) continue;
      const std::string name = of(port.name, first());
      FERRY_RETURN_IF_ERROR(stated_.expect(
          "get_kv_io_bit_width", port.encoding ? dtype_bits(port.dtype) : int64_t{32}, name));
      if (stated_.has("get_global_head_dim")) continue;  // the model has layers of two kinds
      FERRY_RETURN_IF_ERROR(stated_.expect("get_n_kv_heads", port.shape[1], name));
      FERRY_RETURN_IF_ERROR(stated_.expect("get_head_dim", port.shape[2], name));
    }
    return {};
  }

  const ManifestProgram& decoder_;
  const StatedValues& stated_;
  Manifest& m_;
};

// Returns the layer in a name such as "layers.3.attention.wq.weight".
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kStem = "layers.";
  if (!name.starts_with(kStem)) return std::nullopt;
  int32_t layer = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kStem.size(), end, layer);
  if (error != std::errc() || rest == end || *rest != '.' || layer < 0) return std::nullopt;
  return layer;
}

}  // namespace

Status check_layers(const pte::Program& program, int64_t layers, const std::string& file) {
  std::set<int64_t> named;
  for (const pte::Method& method : program.methods) {
    for (const pte::Value& value : method.values) {
      const auto* tensor = std::get_if<pte::Tensor>(&value);
      if (tensor == nullptr || !tensor->external) continue;
      if (const auto layer = layer_of(tensor->fqn)) named.insert(*layer);
    }
  }
  if (named.empty()) return {};
  const int64_t all = layers == 0 ? *named.rbegin() + 1 : layers;
  if (std::ssize(named) == all && *named.rbegin() == all - 1) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{}: has tensors of {} layers, from {} to {}, of a model of {}: a part of "
                  "a model runs in its bundle",
                  file, named.size(), *named.begin(), *named.rbegin(), all));
}

Status derive_sizes(const ManifestProgram& decoder, const StatedValues& stated,
                    Manifest& manifest) {
  return Sizes(decoder, stated, manifest).run();
}

Failure StatedValues::bad(std::string_view method, const std::string& what) const {
  return bad_input(fmt::format("{}: method {} {}", file_, method, what));
}

Result<std::optional<std::vector<pte::Value>>> StatedValues::list(std::string_view method) const {
  const pte::Method* found = program_.find(method);
  if (found == nullptr) return std::optional<std::vector<pte::Value>>();
  if (!found->inputs.empty() || !found->instructions.empty()) {
    return bad(method, "computes, expected one that states a value");
  }
  std::vector<pte::Value> values;
  for (const int32_t index : found->outputs) {
    if (index < 0 || static_cast<size_t>(index) >= found->values.size()) {
      return bad(method, "has an output that is no value");
    }
    values.push_back(found->values[static_cast<size_t>(index)]);
  }
  return std::optional(std::move(values));
}

template <class T>
Result<std::optional<T>> StatedValues::single(std::string_view method,
                                              std::string_view expected) const {
  const auto values = FERRY_TRY(list(method));
  if (!values) return std::optional<T>();
  const T* value = values->size() == 1 ? std::get_if<T>(values->data()) : nullptr;
  if (value == nullptr) return bad(method, fmt::format("does not give {}", expected));
  return std::optional<T>(*value);
}

Result<std::optional<int64_t>> StatedValues::integer(std::string_view method) const {
  return single<int64_t>(method, "one whole number");
}
Result<std::optional<double>> StatedValues::real(std::string_view method) const {
  return single<double>(method, "one number");
}
Result<std::optional<bool>> StatedValues::boolean(std::string_view method) const {
  return single<bool>(method, "true or false");
}

Result<std::optional<std::vector<int64_t>>> StatedValues::integers(std::string_view method) const {
  const auto values = FERRY_TRY(list(method));
  if (!values) return std::optional<std::vector<int64_t>>();
  std::vector<int64_t> numbers;
  for (const pte::Value& value : *values) {
    const auto* number = std::get_if<int64_t>(&value);
    if (number == nullptr) return bad(method, "does not give whole numbers");
    numbers.push_back(*number);
  }
  return std::optional(std::move(numbers));
}

Status StatedValues::expect(std::string_view method, int64_t number, std::string_view of) const {
  const std::optional<int64_t> stated = FERRY_TRY(integer(method));
  if (!stated || *stated == number) return {};
  return bad(method, fmt::format("gives {}, but {} has {}", *stated, of, number));
}

}  // namespace ferry::packer
