// The architectures of GGUF that the families state (converters/family_gguf.h), and their keys in
// the metadata of a file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/family_gguf.h"
#include "core/result.h"

namespace ferry::converters {

// The values of "expert_gating_func".
inline constexpr int64_t kGatingSoftmax = 1, kGatingSigmoid = 2;

// Returns the architectures of this name that are read; several where the name does not determine
// the model. Those with a sign that a file must have come first.
std::vector<const GgufArchitecture*> find_gguf_architectures(std::string_view name);
// Returns the architecture of a model, for the text part where it takes images; nullptr where none
// is written.
const GgufArchitecture* gguf_architecture_of(const ModelConfig& config);
// Returns "llama, qwen2, ..." for messages.
std::string gguf_architecture_names();

// The activation of an MLP, as a Hugging Face config names it.
inline constexpr std::string_view kGgufActivation = "hidden_activation";

// Range of numbers for which no narrower range is known.
constexpr IntRange kGgufCounts = {0, INT32_MAX};
constexpr IntRange kGgufSizes = {1, INT32_MAX};
constexpr FloatRange kGgufReals = {1e-30, 1e15};

struct GgufKeys {
  JsonFields fields;   // all of the metadata
  std::string prefix;  // "llama."

  std::string name(std::string_view key) const { return prefix + std::string(key); }
  Failure unsupported(std::string_view key, std::string_view what) const {
    return fields.error(ErrorCode::kUnsupported, name(key), what);
  }
};

// Returns kUnsupported for a key that changes what a model computes, where Ferry does not support
// that for the architecture, unless the value of the key changes nothing.
Status refuse_unread_keys(const GgufKeys& keys, const GgufArchitecture& architecture);

}  // namespace ferry::converters
