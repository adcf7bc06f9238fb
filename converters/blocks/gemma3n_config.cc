#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <string>

#include "converters/blocks/gemma3n.h"
#include "converters/blocks/gemma3n_numbers.h"
#include "converters/config/ranges.h"

namespace ferry::converters {
namespace {

constexpr IntRange kStreamRange = {1, 16};
constexpr FloatRange kSparsityRange = {0.0, 0.999999};
// Without a list the first layers of a deep model are sparse.
constexpr int64_t kSparseLayers = 10;
constexpr double kSparsity = 0.95;

// The value below which a normal variable is with probability p.
double normal_quantile(double p) {
  double x = 0.0;
  for (int step = 0; step < 100; ++step) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    const double change = (below - p) / density;
    // A bounded step: far from the mean the density is too small for Newton's.
    x -= std::clamp(change, -0.5, 0.5);
    if (std::fabs(change) < 1e-15) break;
  }
  return x;
}

Status read_sparsity(const JsonFields& fields, ModelConfig& config) {
  std::vector<double> sparsity(static_cast<size_t>(config.num_layers), 0.0);
  if (const auto listed =
          FERRY_TRY(fields.numbers("activation_sparsity_pattern", kSparsityRange))) {
    if (std::ssize(*listed) != config.num_layers) {
      return fields.bad(
          "activation_sparsity_pattern",
          fmt::format("has {} values for {} layers", listed->size(), config.num_layers));
    }
    sparsity = *listed;
  } else if (config.num_layers > kSparseLayers) {
    std::fill_n(sparsity.begin(), kSparseLayers, kSparsity);
  }
  for (size_t i = 0; i < sparsity.size(); ++i) {
    // The reference takes the quantile of an f32, in f32.
    if (sparsity[i] <= 0.0) continue;
    const auto p = static_cast<double>(static_cast<float>(sparsity[i]));
    config.numbers[cutoff_name(static_cast<int64_t>(i))] =
        std::bit_cast<int64_t>(normal_quantile(p));
  }
  return {};
}

}  // namespace

Status read_gemma3n(const JsonFields& fields, ModelConfig& config) {
  const auto read = [&](const char* key, IntRange range) -> Status {
    config.numbers[key] = FERRY_TRY(fields.required(key, range));
    return {};
  };
  FERRY_RETURN_IF_ERROR(read(kStreams, kStreamRange));
  FERRY_RETURN_IF_ERROR(read(kActiveStream, {0, config.numbers[kStreams] - 1}));
  FERRY_RETURN_IF_ERROR(read(kLaurelRank, kSizeRange));
  FERRY_RETURN_IF_ERROR(read(kLayerInputSize, kSizeRange));
  FERRY_RETURN_IF_ERROR(read(kLayerVocab, kSizeRange));
  FERRY_RETURN_IF_ERROR(read(kSharedLayers, {0, config.num_layers}));
  if (fields.states("sliding_window_pattern")) {
    return fields.error(ErrorCode::kUnsupported, "sliding_window_pattern",
                        "is not read by the reference, which takes layer_types alone");
  }
  config.scalars.attention = 1.0;
  config.scalars.logit_softcap = FERRY_TRY(fields.number("final_logit_softcapping", kScaleRange));
  return read_sparsity(fields, config);
}

int64_t altup_streams(const ModelConfig& config) { return config.number(kStreams); }

int64_t first_shared_layer(const ModelConfig& config) {
  // As in the reference: where all layers would share, none does.
  const int64_t first = config.num_layers - config.number(kSharedLayers);
  return first > 0 ? first : config.num_layers;
}

}  // namespace ferry::converters
