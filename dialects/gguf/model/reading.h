// GgufReading: a file whose config is being made. Its functions read the layers of the model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/config/model_type.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

// Readers of llama4 assume these numbers: the tokens of a chunk of attention, after which queries
// grow too; the growth of queries; the number of experts of the one model without norms of heads.
inline constexpr int64_t kLlama4Chunk = 8192, kLlama4Unnormed = 128, kLlama4Every = 4;
inline constexpr double kLlama4Growth = 0.1;

// The base of RoPE in layers with a sliding window that readers assume where no key states it.
inline constexpr double kDefaultLocalTheta = 10000;

// Readers of gemma3n assume these numbers: residual streams, the width of the inputs of a layer,
// the rank of the low-rank residual, layers with keys of their own, layers whose activations are
// cut, and where: at a share of the activations, which is so many deviations above their mean.
namespace gemma3n_readers {
inline constexpr int64_t kStreams = 4, kInputSize = 256, kLaurelRank = 64, kOwnKeys = 20,
                         kSparse = 10, kFullEvery = 5;
inline constexpr double kShare = 0.95, kDeviations = 1.6448533535003662, kCap = 30;
}  // namespace gemma3n_readers

// Readers of t5 assume this distance to be the one from which on all have one bucket.
inline constexpr int64_t kT5Farthest = 128;

// Readers of minicpm3 assume the multipliers of the released model.
inline constexpr double kMinicpm3Embedding = 12, kMinicpm3Depth = 1.4, kMinicpm3Base = 256;
// The epsilon of the norms of latent vectors in the reference.
inline constexpr double kLatentEpsilon = 1e-6;

struct GgufTensorNames {
  std::set<std::string, std::less<>> patterns;  // "{i}" for the layer: "blk.{i}.attn_q.weight"
  std::set<int64_t> routed;                     // layers with a router of experts
  std::set<int64_t> valued;                     // layers with a matrix for values
  std::set<int64_t> recurrent;                  // layers of Mamba
  std::set<int64_t> biased;                     // layers of an encoder with biases by distance
};
GgufTensorNames gguf_tensor_names(const TensorSource& source);

struct GgufReading {
  const GgufKeys* keys = nullptr;
  const GgufArchitecture* architecture = nullptr;
  const ModelType* type = nullptr;
  const GgufTensorNames* tensors = nullptr;
  // The config so far, under the names that readers of configs ask for (json_fields.h). Members
  // that the functions below need are there as far as the file states them.
  nlohmann::json* config = nullptr;
  std::vector<std::string> missing = {};  // keys that only the user can give
  int64_t layers = 0;                     // 0 where the file does not say
  int64_t head_dim = 0;  // 0 where the file does not say; with latent attention the part with RoPE

  bool has(std::string_view tensor) const { return tensors->patterns.contains(tensor); }
  bool states(std::string_view key) const;
  // Returns a key that is an integer, or a list of one for each layer. Zeros are layers without it;
  // the other values must be equal.
  Result<std::optional<int64_t>> integer(std::string_view key, IntRange range) const;
  // Makes an integer a member of the config, or adds the key to `missing` where the file lacks it.
  Status take(std::string_view key, const char* member, IntRange range);
};

// Returns 12 and "blk.{i}.attn_q.weight" for "blk.12.attn_q.weight"; -1 and the name for other
// names.
std::pair<int64_t, std::string> split_gguf_layer(const std::string& name);

// Reads the types of layers: linear attention, sliding windows, layers without attention.
Status read_gguf_layer_types(GgufReading& reading);
// Reads number, layers and routing of experts. kUnsupported where the architecture has none.
Status read_gguf_experts(GgufReading& reading);

// Whether a file belongs to the architecture that has the sign, of several with one name.
bool has_gguf_sign(const GgufReading& file, GgufSign sign);
// Reads the keys that only the file's architecture and few others have.
Status read_gguf_own_keys(GgufReading& reading);

// A number of the metadata that is a number of the config.
struct GgufNumber {
  std::string_view gguf;  // behind "ARCHITECTURE."
  std::string_view hf;
  bool real = false, required = true;
  bool zero_is_none = false;
  // Returns the number in a parsed config. The config of a user must agree with the file.
  double (*of)(const ModelConfig&) = nullptr;
  double (*or_of)(const ModelConfig&) = nullptr;
  bool latent = true;            // the key means this with latent attention too
  std::string_view unless = {};  // another key, beside which this one need not be there
  bool by_kind = false;          // layer_kinds.h reads the key where kinds of layers differ
};
// Returns the table of the sizes of linear attention.
std::span<const GgufNumber> gguf_linear_numbers();
// Returns the tables of numbers that files of the architecture state.
std::vector<std::span<const GgufNumber>> gguf_number_tables(const GgufArchitecture& architecture);

}  // namespace ferry::converters
