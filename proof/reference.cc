#include "proof/reference.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "core/dtype.h"
#include "core/program_interface.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

constexpr std::string_view kInputIds = "input_ids";
constexpr uint64_t kTileBytes = uint64_t{1} << 20;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double float_at(DType dtype, const std::byte* data, size_t i) {
  switch (dtype) {
    case DType::kF64:
      return load<double>(data + 8 * i);
    case DType::kF16:
      return static_cast<double>(f16_to_f32(load<uint16_t>(data + 2 * i)));
    case DType::kBF16:
      return static_cast<double>(bf16_to_f32(load<uint16_t>(data + 2 * i)));
    default:
      return static_cast<double>(load<float>(data + 4 * i));
  }
}

Result<std::vector<std::byte>> read_all(const TensorSource& source, size_t entry) {
  std::vector<std::byte> bytes(source.entries()[entry].bytes);
  FERRY_RETURN_IF_ERROR(source.read(entry, 0, bytes));
  return bytes;
}

// Returns the prompt's name with its dot if `name` is that of a prompt's tokens, or of another
// input of it.
std::optional<std::string_view> prompt_prefix(std::string_view name,
                                              std::string_view input = kInputIds) {
  if (!name.ends_with(input)) return std::nullopt;
  name.remove_suffix(input.size());
  if (!name.empty() && !name.ends_with('.')) return std::nullopt;
  return name;
}

std::string without_dot(std::string_view prefix) {
  return std::string(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1));
}

// Adds the prompts that have a sound and no tokens.
void add_sounds(const std::vector<TensorEntry>& entries, std::vector<ReferencePrompt>& prompts) {
  for (const TensorEntry& entry : entries) {
    std::string name = entry.name;
    std::ranges::replace(name, '/', '.');
    const auto prefix = prompt_prefix(name, kInputFeaturesPort);
    if (!prefix) continue;
    const std::string stated = without_dot(*prefix);
    if (std::ranges::count(prompts, stated, &ReferencePrompt::name) > 0) continue;
    prompts.emplace_back().name = stated;
  }
}

// Returns the prompt with the longest prefix of `name`.
ReferencePrompt* owner(std::vector<ReferencePrompt>& prompts, std::string_view name) {
  ReferencePrompt* best = nullptr;
  for (ReferencePrompt& prompt : prompts) {
    const bool fits =
        prompt.name.empty() || (name.size() > prompt.name.size() && name.starts_with(prompt.name) &&
                                name[prompt.name.size()] == '.');
    if (fits && (best == nullptr || prompt.name.size() > best->name.size())) best = &prompt;
  }
  return best;
}

// Converts HDF5 paths to names: "short/logits" becomes "short.logits".
std::string dotted(std::string name) {
  std::ranges::replace(name, '/', '.');
  return name;
}

using Kind = ReferenceTensor::Kind;

struct CacheName {
  const char* reference;
  const char* buffer;
  Kind kind;
};
constexpr CacheName kCaches[] = {
    {"key", "kv_cache.k_cache", Kind::kKey},
    {"value", "kv_cache.v_cache", Kind::kValue},
    {"conv_state", "conv_state", Kind::kConvState},
    {"recurrent_state", "recurrent_state", Kind::kRecurrentState},
};

}  // namespace

Result<Reference> Reference::open(const TensorSource& source) {
  Reference reference(source);
  const std::vector<TensorEntry>& entries = source.entries();
  const auto encoded = std::ranges::find_if(
      entries, [](const TensorEntry& entry) { return entry.encoding != nullptr; });
  if (encoded != entries.end()) {
    return bad_input(fmt::format("{}: stored as {}, expected plain values (tensor {})",
                                 source.path(), encoded->form(), quoted(encoded->name)));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string name = dotted(entries[i].name);
    const auto prefix = prompt_prefix(name);
    if (!prefix) continue;
    ReferencePrompt prompt;
    prompt.name = without_dot(*prefix);
    prompt.input_ids = FERRY_TRY(reference.read_ids(i));
    if (prompt.input_ids.empty()) {
      return bad_input(fmt::format("{}: the prompt is empty (tensor {})", source.path(),
                                   quoted(entries[i].name)));
    }
    reference.prompts_.push_back(std::move(prompt));
  }
  add_sounds(entries, reference.prompts_);
  std::ranges::sort(reference.prompts_, {}, &ReferencePrompt::name);
  const auto twice = std::ranges::adjacent_find(reference.prompts_, {}, &ReferencePrompt::name);
  if (twice != reference.prompts_.end()) {
    return bad_input(
        fmt::format("{}: two prompts are called {}", source.path(), quoted(twice->name)));
  }
  if (reference.prompts_.empty()) {
    return bad_input(
        fmt::format("{}: no prompt: no tensor is named PROMPT.input_ids", source.path()));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string name = dotted(entries[i].name);
    if (prompt_prefix(name)) continue;
    ReferencePrompt* prompt = owner(reference.prompts_, name);
    if (prompt == nullptr) {
      return bad_input(
          fmt::format("{}: belongs to no prompt, no input_ids has its prefix (tensor {})",
                      source.path(), quoted(name)));
    }
    const size_t skip = prompt->name.empty() ? 0 : prompt->name.size() + 1;
    if (!prompt->tensors.emplace(name.substr(skip), i).second) {
      return bad_input(fmt::format("{}: occurs twice, with '/' and with '.' (tensor {})",
                                   source.path(), quoted(entries[i].name)));
    }
  }
  return reference;
}

void Reference::name_last_states(int64_t layers, int64_t width) {
  for (ReferencePrompt& prompt : prompts_) {
    const auto states = prompt.tensors.find(fmt::format("hidden_states.{}", layers));
    if (states == prompt.tensors.end() || prompt.has(std::string(kLastHiddenStatePort))) continue;
    const Shape expected = {1, std::ssize(prompt.input_ids), width};
    if (source_->entries()[states->second].shape != expected) continue;
    prompt.tensors.emplace(kLastHiddenStatePort, states->second);
    prompt.tensors.erase(states);
  }
}

const Shape& Reference::shape(const ReferencePrompt& prompt, const std::string& tensor) const {
  return source_->entries()[prompt.tensors.at(tensor)].shape;
}

Status Reference::check_type(const TensorEntry& entry, const Shape& expected) const {
  if (!is_floating(entry.dtype)) {
    return bad_input(fmt::format("{}: dtype {} where a floating-point type is expected (tensor {})",
                                 path(), dtype_name(entry.dtype), quoted(entry.name)));
  }
  if (entry.shape != expected) {
    return bad_input(fmt::format("{}: shape {} where {} is expected (tensor {})", path(),
                                 to_string(entry.shape), to_string(expected), quoted(entry.name)));
  }
  return {};
}

Status Reference::check(const ReferencePrompt& prompt, const std::string& tensor,
                        const Shape& expected) const {
  const size_t index = prompt.tensors.at(tensor);
  const TensorEntry& entry = source_->entries()[index];
  FERRY_RETURN_IF_ERROR(check_type(entry, expected));
  std::vector<std::byte> tile(std::min(kTileBytes, entry.bytes));
  for (uint64_t at = 0; at < entry.bytes; at += tile.size()) {
    const auto part = std::span(tile).first(std::min<uint64_t>(tile.size(), entry.bytes - at));
    FERRY_RETURN_IF_ERROR(source_->read(index, at, part));
    if (count_non_finite(entry.dtype, part) == 0) continue;
    return bad_input(
        fmt::format("{}: a value is not finite (tensor {})", path(), quoted(entry.name)));
  }
  return {};
}

Result<std::vector<double>> Reference::doubles(const ReferencePrompt& prompt,
                                               const std::string& tensor,
                                               const Shape& expected) const {
  const size_t index = prompt.tensors.at(tensor);
  const TensorEntry& entry = source_->entries()[index];
  FERRY_RETURN_IF_ERROR(check_type(entry, expected));
  const std::vector<std::byte> bytes = FERRY_TRY(read_all(*source_, index));
  std::vector<double> values(bytes.size() / static_cast<size_t>(dtype_bytes(entry.dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = float_at(entry.dtype, bytes.data(), i);
    if (!std::isfinite(values[i])) {
      return bad_input(fmt::format("{}: a value is not finite (tensor {}, element {})", path(),
                                   quoted(entry.name), i));
    }
  }
  return values;
}

Result<std::vector<float>> Reference::floats(const ReferencePrompt& prompt,
                                             const std::string& tensor,
                                             const Shape& expected) const {
  const std::vector<double> wide = FERRY_TRY(doubles(prompt, tensor, expected));
  std::vector<float> values(wide.size());
  std::ranges::transform(wide, values.begin(), [](double v) { return static_cast<float>(v); });
  return values;
}

Result<std::vector<int64_t>> Reference::ids(const ReferencePrompt& prompt,
                                            const std::string& tensor) const {
  return read_ids(prompt.tensors.at(tensor));
}

Result<std::vector<int64_t>> Reference::read_ids(size_t index) const {
  const TensorEntry& entry = source_->entries()[index];
  const bool one_row = entry.shape.size() == 1 || (entry.shape.size() == 2 && entry.shape[0] == 1);
  if (!one_row || (entry.dtype != DType::kI64 && entry.dtype != DType::kI32)) {
    return bad_input(fmt::format("{}: token ids must be i64 [1, T], not {} {} (tensor {})", path(),
                                 dtype_name(entry.dtype), to_string(entry.shape),
                                 quoted(entry.name)));
  }
  return read_integers(index);
}

Result<std::vector<int64_t>> Reference::integers(const ReferencePrompt& prompt,
                                                 const std::string& tensor,
                                                 const Shape& expected) const {
  const size_t index = prompt.tensors.at(tensor);
  const TensorEntry& entry = source_->entries()[index];
  const bool usable = entry.dtype == DType::kI64 || entry.dtype == DType::kI32 ||
                      (entry.dtype == DType::kBool && entry.shape.size() > 1);
  if (entry.shape != expected || !usable) {
    return bad_input(fmt::format("{}: {} {} where i64 {} is expected (tensor {})", path(),
                                 dtype_name(entry.dtype), to_string(entry.shape),
                                 to_string(expected), quoted(entry.name)));
  }
  return read_integers(index);
}

Result<std::vector<int64_t>> Reference::read_integers(size_t index) const {
  const TensorEntry& entry = source_->entries()[index];
  const std::vector<std::byte> bytes = FERRY_TRY(read_all(*source_, index));
  if (entry.dtype == DType::kBool) {
    std::vector<int64_t> mask;
    for (const std::byte value : bytes) mask.push_back(std::to_integer<int64_t>(value));
    return mask;
  }
  const bool wide = entry.dtype == DType::kI64;
  std::vector<int64_t> ids(bytes.size() / (wide ? 8 : 4));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = wide ? load<int64_t>(bytes.data() + 8 * i) : load<int32_t>(bytes.data() + 4 * i);
  }
  return ids;
}

std::string name_of(const Reference& reference, const ReferencePrompt& prompt) {
  return fmt::format("{}: prompt {}", reference.path(), quoted(prompt.name));
}

Result<std::vector<int64_t>> token_types(const Reference& reference,
                                         const ReferencePrompt& prompt) {
  if (!prompt.has(kTokenTypeIds)) return std::vector<int64_t>();
  return reference.integers(prompt, kTokenTypeIds, {1, std::ssize(prompt.input_ids)});
}

std::vector<ReferenceTensor> reference_tensors(int64_t layers) {
  std::vector<ReferenceTensor> all;
  const auto add = [&](Kind kind, const std::string& name, int64_t layer) {
    all.push_back({kind, name, name, layer});
  };
  add(Kind::kHidden, "hidden_states.0", -1);
  for (int64_t n = 0; n < layers; ++n) {
    for (const CacheName& cache : kCaches) {
      all.push_back({cache.kind, fmt::format("cache.{}.{}", n, cache.reference),
                     fmt::format("layers.{}.attention.{}", n, cache.buffer), n});
    }
    add(Kind::kRouterLogits, fmt::format("router_logits.{}", n), n);
    const bool last = n + 1 == layers;
    add(Kind::kHidden, last ? "last_layer_prenorm" : fmt::format("hidden_states.{}", n + 1), n);
  }
  add(Kind::kHidden, fmt::format("hidden_states.{}", layers), layers);
  add(Kind::kState, std::string(kLastHiddenStatePort), layers);
  add(Kind::kVector, std::string(kSentenceEmbeddingPort), layers);
  add(Kind::kVector, std::string(kClassLogitsPort), layers);
  add(Kind::kState, std::string(kTokenLogitsPort), layers);
  return all;
}

std::string route_name(int64_t layer) { return fmt::format("router_experts.{}", layer); }
std::string greedy_route_name(int64_t layer) {
  return fmt::format("greedy_router_experts.{}", layer);
}

}  // namespace ferry::proof
