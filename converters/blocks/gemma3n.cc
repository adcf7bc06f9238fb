#include "converters/blocks/gemma3n.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "converters/config/json_fields.h"

namespace ferry::converters {
namespace {

// Members of ModelConfig::numbers, which have the names of the config's keys.
constexpr const char* kStreams = "altup_num_inputs";
constexpr const char* kActiveStream = "altup_active_idx";
constexpr const char* kScaleCorrected = "altup_correct_scale";
constexpr const char* kLaurelRank = "laurel_rank";
// Returns the name of a number that holds the bits of an f64: how many standard deviations above
// the mean an activation of a sparse layer must be. The number is absent where the layer is not
// sparse.
std::string cutoff_name(int64_t layer) { return "activation_cutoff." + std::to_string(layer); }

// The least mean square that a stream is divided by.
constexpr float kLeastMeanSquare = 1e-5F;
// A bound that keeps x * rsqrt(x) finite at 0. No embedding has a smaller mean square.
constexpr float kTiny = 1e-30F;

// The values that layers pass on beside the first stream: all streams, [1,T,hidden_size] each, the
// inputs of all layers, [1,T,layers,size], and the keys and values that later layers share.
struct Shared {
  std::vector<ValueId> streams = {};
  ValueId layer_inputs = {};
  HeldByType held = {};
};

class Gemma3n {
 public:
  Gemma3n(GraphBuilder& b, const DecoderContext& c, Shared& shared)
      : b_(b), c_(c), g_(c.config), shared_(shared) {}

  ValueId enter(ValueId x);
  ValueId layer(ValueId x, int64_t layer);

 private:
  ValueId norm(ValueId x, const std::string& name) {
    return rms_norm(b_, x, name + ".weight", g_.rms_norm_eps);
  }
  ValueId linear(ValueId x, const std::string& name, int64_t in, Dim out) {
    return projection(b_, x, name, in, out, /*bias=*/false);
  }
  // A small matrix that decides how streams mix, [..,in] -> [..,out].
  ValueId mix(ValueId x, const std::string& name, int64_t in, int64_t out) {
    return b_.linear(x, b_.weight_f32(name + ".weight", {features(out), features(in)}));
  }
  void name_streams();
  // [T,hidden_size] -> [1,T,hidden_size]. A view would not do, because every part of a sharded
  // model makes views again and would need all streams for them.
  ValueId of_batch(ValueId x) { return b_.expand(x, {batch(), c_.tokens, width_}); }
  // Returns the tanh of the router's output, from which mixing coefficients are computed:
  // [1,T,streams].
  ValueId modalities(ValueId x, const std::string& prefix);
  // Returns the predictions of all streams, [T,streams,hidden_size].
  ValueId predict(const std::string& prefix);
  std::vector<ValueId> correct(ValueId predictions, ValueId active, ValueId activated,
                               const std::string& prefix);
  ValueId laurel(ValueId x, const std::string& prefix);
  ValueId feed_forward(ValueId x, int64_t layer);
  ValueId layer_input(ValueId first, int64_t layer);

  GraphBuilder& b_;
  const DecoderContext& c_;
  const ModelConfig& g_;
  Shared& shared_;
  const int64_t count_ = altup_streams(g_);
  const int64_t active_ = g_.number(kActiveStream);
  const Dim width_ = features(g_.hidden_size);
};

// Returns max(x, least).
ValueId at_least(GraphBuilder& b, ValueId x, float least) {
  const ValueId bound = b.scalar(least);
  return b.add(b.relu(b.sub(x, bound)), bound);
}

ValueId mean_square(GraphBuilder& b, ValueId x) { return b.mean_last(b.mul(x, x)); }

// Scales x so that the mean squares of its rows are `target`.
ValueId scaled_to(GraphBuilder& b, ValueId x, ValueId target) {
  const ValueId root = b.mul(target, b.rsqrt(at_least(b, target, kTiny)));
  const ValueId inverse = b.rsqrt(at_least(b, mean_square(b, x), kLeastMeanSquare));
  const ValueId factor = b.mul(root, inverse);
  return b.mul(x, factor);
}

// Names the streams that layers pass on. The first one has the name that all families give it.
void Gemma3n::name_streams() {
  for (size_t i = 1; i < shared_.streams.size(); ++i) {
    b_.name(shared_.streams[i], "stream_" + std::to_string(i));
  }
}

ValueId Gemma3n::enter(ValueId x) {
  shared_ = {};
  shared_.streams = {x};
  const ValueId target = mean_square(b_, x);
  for (int64_t i = 0; i + 1 < count_; ++i) {
    const ValueId y = linear(x, "altup.in." + std::to_string(i), g_.hidden_size, width_);
    shared_.streams.push_back(scaled_to(b_, y, target));
  }
  name_streams();
  shared_.layer_inputs = layer_inputs(b_, c_, x);
  return x;
}

ValueId Gemma3n::modalities(ValueId x, const std::string& prefix) {
  const ValueId normed =
      b_.mul(norm(x, prefix + "router_norm"), 1.0 / static_cast<double>(g_.hidden_size));
  return b_.tanh(mix(normed, prefix + "router", g_.hidden_size, count_));
}

ValueId Gemma3n::predict(const std::string& prefix) {
  std::vector<ValueId> rows;
  for (const ValueId stream : shared_.streams) {
    rows.push_back(b_.unsqueeze(b_.select(stream, 0, 0), 1));
  }
  const ValueId stacked = b_.cat(rows, 1);
  const ValueId router = modalities(shared_.streams[static_cast<size_t>(active_)], prefix);
  const ValueId flat = mix(router, prefix + "predict", count_, count_ * count_);
  const ValueId coefficients = b_.view(b_.select(flat, 0, 0), {c_.tokens, count_, count_});
  return b_.add(b_.bmm(coefficients, stacked), stacked);
}

std::vector<ValueId> Gemma3n::correct(ValueId predictions, ValueId active, ValueId activated,
                                      const std::string& prefix) {
  const ValueId router = modalities(activated, prefix);
  const ValueId one = b_.scalar(1.0F);
  const ValueId raised = b_.add(mix(router, prefix + "correct", count_, count_), one);
  const ValueId coefficients = b_.unsqueeze(b_.select(raised, 0, 0), 2);
  const ValueId innovation = b_.unsqueeze(b_.select(b_.sub(activated, active), 0, 0), 1);
  const ValueId corrected = b_.add(b_.bmm(coefficients, innovation), predictions);
  std::vector<ValueId> out;
  for (int64_t i = 0; i < count_; ++i) out.push_back(of_batch(b_.select(corrected, 1, i)));
  return out;
}

ValueId Gemma3n::laurel(ValueId x, const std::string& prefix) {
  const int64_t rank = g_.number(kLaurelRank);
  const ValueId low = linear(x, prefix + "left", g_.hidden_size, rank);
  const ValueId high = linear(low, prefix + "right", rank, width_);
  return b_.add(x, norm(high, prefix + "norm"));
}

ValueId Gemma3n::feed_forward(ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "feed_forward");
  const int64_t inner = g_.intermediate_size;
  ValueId gate = linear(x, prefix + ".w1", g_.hidden_size, inner);
  if (const auto cutoff = gemma3n_cutoff(g_, layer)) {
    const ValueId centred = b_.sub(gate, b_.mean_last(gate));
    const ValueId variance = mean_square(b_, centred);
    const ValueId deviation = b_.mul(variance, b_.rsqrt(at_least(b_, variance, kTiny)));
    gate = b_.relu(b_.sub(centred, b_.mul(deviation, *cutoff)));
  }
  const ValueId up = linear(x, prefix + ".w3", g_.hidden_size, inner);
  const ValueId activated = activate(b_, g_.activation, gate);
  return linear(b_.mul(activated, up), prefix + ".w2", inner, width_);
}

// Returns the addend of all streams but the first. The layer's own embeddings give it.
ValueId Gemma3n::layer_input(ValueId first, int64_t layer) {
  if (g_.number(kScaleCorrected) != 0) {
    first = b_.mul(first, b_.weight(layer_name(layer, "altup.scale"), {width_}));
  }
  return layer_input_addend(b_, c_, shared_.layer_inputs, first, layer);
}

ValueId Gemma3n::layer(ValueId x, int64_t layer) {
  shared_.streams.front() = x;
  const std::string altup = layer_name(layer, "altup.");
  const ValueId predictions = predict(altup);
  const ValueId active = of_batch(b_.select(predictions, 1, active_));
  const ValueId normed = norm(active, layer_name(layer, "attention_norm"));
  const ValueId low_rank = laurel(normed, layer_name(layer, "laurel."));
  const ValueId attended = norm(shared_layer_attention(b_, c_, normed, layer, shared_.held),
                                layer_name(layer, "post_attention_norm"));
  const ValueId gated = b_.add(active, attended);
  const ValueId joined = b_.mul(b_.add(gated, low_rank), 1.0 / std::numbers::sqrt2);
  const ValueId mapped = feed_forward(norm(joined, layer_name(layer, "ffn_norm")), layer);
  const ValueId activated = b_.add(joined, norm(mapped, layer_name(layer, "post_ffn_norm")));
  std::vector<ValueId> streams = correct(predictions, active, activated, altup);
  const ValueId added = layer_input(streams[static_cast<size_t>(active_)], layer);
  for (size_t i = 1; i < streams.size(); ++i) streams[i] = b_.add(streams[i], added);
  shared_.streams = std::move(streams);
  name_streams();
  return shared_.streams.front();
}

// Returns the final norm of the mean of all streams, each scaled to the size of the first one. `x`
// is the first stream, or its last token.
ValueId leave(GraphBuilder& b, const ModelConfig& config, const Shared& shared, ValueId x) {
  const bool last_only = b.graph()[x].shape.size() == 2;
  const ValueId target = mean_square(b, x);
  ValueId sum = x;
  for (size_t i = 1; i < shared.streams.size(); ++i) {
    const ValueId stream = last_only ? b.select(shared.streams[i], 1, -1) : shared.streams[i];
    const ValueId y = projection(b, stream, "altup.out." + std::to_string(i - 1),
                                 config.hidden_size, config.hidden_size, /*bias=*/false);
    sum = b.add(sum, scaled_to(b, y, target));
  }
  const ValueId mean = b.mul(sum, 1.0 / static_cast<double>(shared.streams.size()));
  return rms_norm(b, mean, "norm.weight", config.rms_norm_eps);
}

constexpr IntRange kStreamRange = {1, 16};
constexpr FloatRange kSparsityRange = {0.0, 0.999999};
// If the config has no list, the first layers of a deep model are sparse.
constexpr int64_t kSparseLayers = 10;
constexpr double kSparsity = 0.95;

// Returns the value below which a standard normal variable lies with probability p.
double normal_quantile(double p) {
  double x = 0.0;
  for (int step = 0; step < 100; ++step) {
    const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
    const double change = (below - p) / density;
    // The step is bounded, because far from the mean the density is too small for Newton's method.
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

std::optional<double> gemma3n_cutoff(const ModelConfig& config, int64_t layer) {
  const auto found = config.numbers.find(cutoff_name(layer));
  if (found == config.numbers.end()) return std::nullopt;
  return std::bit_cast<double>(found->second);
}

Result<Methods> build_gemma3n(const ModelConfig& config, const BuildOptions& options) {
  FERRY_RETURN_IF_ERROR(check_shared_layers(config));
  const auto shared = std::make_shared<Shared>();
  const Layer layer = [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t number) {
    return Gemma3n(b, c, *shared).layer(x, number);
  };
  const auto enter = [&](GraphBuilder& b, const DecoderContext& c, ValueId x) {
    return Gemma3n(b, c, *shared).enter(x);
  };
  const auto final_norm = [&](GraphBuilder& b, ValueId x) { return leave(b, config, *shared, x); };
  return build_frame(config, options, {.layer = layer, .final_norm = final_norm, .enter = enter});
}

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

}  // namespace ferry::converters
