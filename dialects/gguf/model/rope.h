// Reads the RoPE of a GGUF file, from its metadata and the tensors that scale frequencies, into the
// members of a Hugging Face config. One of these tensors is rope_freqs.weight, mostly llama3's
// scaling: element i divides the i-th inverse frequency; the parameters that it was computed from
// are not in the file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

struct GgufRopeInput {
  const GgufKeys* keys = nullptr;
  const GgufArchitecture* architecture = nullptr;
  const TensorSource* tensors = nullptr;
  double theta = 0;
  int64_t head_dim = 0;       // 0 where the file does not say
  int64_t max_positions = 0;  // 0 where the file does not say
};

struct GgufRope {
  nlohmann::json parameters;  // rope_parameters
  // original_max_position_embeddings beside the object, for model types that have a default of
  // their own.
  std::optional<int64_t> original_positions;
  // Divisors of the frequencies, one per pair of rotary dimensions: rope_freqs.weight, or
  // rope_factors_short.weight and rope_factors_long.weight. Empty where the file has none.
  std::vector<float> factors, long_factors;
  std::string tensor;                      // name of the first tensor of factors
  std::optional<double> attention_factor;  // factor of longrope, as stated
  std::vector<std::string> missing;        // keys that only the user can give
};

// rope_freqs.weight gives llama3 scaling where its parameters can be recovered. Elsewhere it is
// used as it stands: as longrope with two equal sets of factors. kUnsupported for other types of
// scaling, for a part of each head that the architecture does not rotate, and for two scalings at
// once. kBadInput for tensors of other shapes and for factors that are not positive numbers.
Result<GgufRope> read_gguf_rope(const GgufRopeInput& input);

// Whether `rope` divides frequencies by the factors that the file has.
bool agrees_with(const RopeConfig& rope, int64_t rotary_dim, const GgufRope& stored);

// Whether the scaling of `rope` divides frequencies by `factors`, one per pair of rotary
// dimensions, as far as f32 tells (1e-5).
bool gives_rope_factors(const RopeConfig& rope, const std::vector<float>& factors);

// Returns parameters of llama3 scaling that give `factors`, for frequencies of base `theta`: those
// of Llama 3.1 and later (low 1, high 4) where they do, or else any equivalent ones. nullopt where
// there are none. The parameters are not unique: multiplying low, high and the original length by
// one number changes nothing.
std::optional<RopeConfig> recover_llama3_scaling(double theta, const std::vector<float>& factors);

}  // namespace ferry::converters
