// GgufReading: a file whose config is being made, and how the layers of its model are read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/config/model_type.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"
#include "dialects/gguf/model/keys.h"

namespace ferry::converters {

struct GgufTensorNames {
  std::set<std::string, std::less<>> patterns;  // "{i}" for the layer: "blk.{i}.attn_q.weight"
  std::set<int64_t> routed;                     // layers with a router of experts
};
GgufTensorNames gguf_tensor_names(const TensorSource& source);

struct GgufReading {
  const GgufKeys* keys = nullptr;
  const GgufArchitecture* architecture = nullptr;
  const ModelType* type = nullptr;
  const GgufTensorNames* tensors = nullptr;
  // The config so far, under the names that readers of configs ask for (json_fields.h). Members of
  // the types that follow are in it as far as the file states them.
  nlohmann::json* config = nullptr;
  std::vector<std::string> missing = {};  // keys that only the user can give
  int64_t layers = 0;                     // 0 where the file does not say
  int64_t head_dim = 0;                   // likewise; of latent attention the part with RoPE

  bool has(std::string_view tensor) const { return tensors->patterns.contains(tensor); }
  bool states(std::string_view key) const;
  // A key that is an integer, or a list of one for each layer; zeros are layers without. Those that
  // are not zero must be equal.
  Result<std::optional<int64_t>> integer(std::string_view key, IntRange range) const;
  // An integer that becomes a member of the config. It is missing where the file lacks it.
  Status take(std::string_view key, const char* member, IntRange range);
};

// "blk.12.attn_q.weight" -> 12 and "blk.{i}.attn_q.weight"; other names as they are, in layer -1.
std::pair<int64_t, std::string> split_gguf_layer(const std::string& name);

// The types of layers: linear attention, sliding windows, layers without attention.
Status read_gguf_layer_types(GgufReading& reading);
// Number, layers and routing of experts. kUnsupported where the architecture has none.
Status read_gguf_experts(GgufReading& reading);

// Whether a file is of the architecture that has the sign, of several with one name.
bool has_gguf_sign(const GgufReading& file, GgufSign sign);
// Reads the keys that only this architecture and few others have.
Status read_gguf_own_keys(GgufReading& reading);

}  // namespace ferry::converters
