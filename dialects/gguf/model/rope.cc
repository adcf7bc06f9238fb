#include "dialects/gguf/model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "converters/blocks/rope.h"
#include "core/text.h"
#include "dialects/gguf/model/layer_kinds.h"

namespace ferry::converters {
namespace {

constexpr double kFactorTolerance = 1e-5;
constexpr double kLow = 1.0, kHigh = 4.0;  // parameters of all Llama models with scaling
constexpr int kMaxOriginalBits = 24;
// Any one of a model's own factors determines the length; several are tried, because they are
// rounded.
constexpr size_t kMaxCandidates = 64;

bool same(double a, double b) { return std::abs(a - b) <= kFactorTolerance * std::max(a, b); }

RopeConfig llama3(double theta, double factor, double low, double high, int64_t original) {
  return {.type = RopeConfig::Type::kLlama3,
          .theta = theta,
          .factor = factor,
          .low_freq_factor = low,
          .high_freq_factor = high,
          .original_max_positions = original,
          .factors = {},
          .long_factors = {}};
}

// A frequency between those that are kept and those that are divided by the whole factor: its wave
// length, and how much of it is kept (0 to 1).
struct Between {
  double wave, smooth;
};

std::vector<Between> frequencies_between(double theta, double factor,
                                         const std::vector<float>& factors) {
  std::vector<Between> found;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double f = factors[i];
    if (same(f, 1.0) || same(f, factor)) continue;
    const double exponent = static_cast<double>(i) / static_cast<double>(factors.size());
    found.push_back({2 * std::numbers::pi * std::pow(theta, exponent),
                     (1.0 / f - 1.0 / factor) / (1.0 - 1.0 / factor)});
  }
  return found;
}

using nlohmann::json;

constexpr FloatRange kFactors = {0, 1e15};  // 0 stands for no factor
constexpr const char* kFrequencies = "rope_freqs.weight";
constexpr const char* kShort = "rope_factors_short.weight";
constexpr const char* kLong = "rope_factors_long.weight";
constexpr uint64_t kMaxFactorBytes = uint64_t{1} << 20;
constexpr float kLeastFactor = 1e-6F, kMostFactor = 1e6F;  // the range that configs have
constexpr double kRelative = 1e-6;                         // numbers are f32 in GGUF

class RopeReader {
 public:
  explicit RopeReader(const GgufRopeInput& in) : in_(in), keys_(*in.keys), rotary_(in.head_dim) {}

  Result<GgufRope> run() {
    out_.parameters = {{"rope_type", "default"}, {"rope_theta", in_.theta}};
    FERRY_RETURN_IF_ERROR(read_rotary_part());
    FERRY_RETURN_IF_ERROR(read_type());
    FERRY_RETURN_IF_ERROR(read_tensors());
    return std::move(out_);
  }

 private:
  Result<std::optional<double>> number(std::string_view key, FloatRange range) const {
    return keys_.fields.number(keys_.name(key), range);
  }
  bool is_proportional() const { return in_.architecture->own_keys == GgufOwnKeys::kKindsOfLayers; }
  const std::string type() const { return out_.parameters["rope_type"].get<std::string>(); }

  Status read_rotary_part() {
    const std::string key = keys_.name("rope.dimension_count");
    const auto rotary = FERRY_TRY(keys_.fields.integer(key, kGgufSizes));
    const bool partial = in_.architecture->partial_rotary || in_.architecture->linear_attention;
    if (in_.head_dim == 0 || (!rotary && !in_.architecture->linear_attention)) return {};
    rotary_ = rotary.value_or(in_.head_dim);
    double part = static_cast<double>(rotary_) / static_cast<double>(in_.head_dim);
    // The config's reader multiplies the part by the head's size and cuts the product to an
    // integer.
    if (static_cast<int64_t>(part * static_cast<double>(in_.head_dim)) < rotary_) {
      part = std::nextafter(part, 2.0);
    }
    if (part > 1.0) return keys_.fields.bad(key, "is above the size of a head");
    if (part < 1.0 && !partial) {
      return keys_.unsupported("rope.dimension_count",
                               "turns a part of each head: not supported in this architecture");
    }
    if (partial) out_.parameters["partial_rotary_factor"] = part;
    return {};
  }

  // Readers of GGUF take a factor without a type for linear scaling, and use the older of two keys
  // where the newer is absent.
  Status read_type() {
    const auto stated = FERRY_TRY(keys_.fields.text(keys_.name("rope.scaling.type")));
    auto factor = FERRY_TRY(number("rope.scaling.factor", kFactors));
    if (!factor) factor = FERRY_TRY(number("rope.scale_linear", kFactors));
    const bool scales = factor && *factor != 0 && *factor != 1;
    const std::string type = stated.value_or(scales ? "linear" : "none");
    if (type == "none") return read_attention_factor();
    if (type == "longrope") {
      if (scales) return keys_.unsupported("rope.scaling.factor", "stands beside longrope");
      out_.parameters["rope_type"] = type;
      return {};
    }
    if (type != "linear" && type != "yarn") {
      return keys_.unsupported("rope.scaling.type",
                               fmt::format("is {}: not supported", quoted(type)));
    }
    if (!factor || *factor == 0) {
      return keys_.fields.bad(keys_.name("rope.scaling.factor"), "is missing");
    }
    out_.parameters["rope_type"] = type;
    out_.parameters["factor"] = *factor;
    FERRY_RETURN_IF_ERROR(read_attention_factor());
    return type == "yarn" ? read_yarn() : Status();
  }

  // Refuses a factor of attention, unless the file has the factors of longrope.
  Status read_attention_factor() const {
    const auto factor = FERRY_TRY(number("rope.scaling.attn_factor", kFactors));
    const bool has_sets = find(kShort) || find(kLong);
    if (!factor || *factor == 1 || has_sets) return {};
    return keys_.unsupported("rope.scaling.attn_factor",
                             fmt::format("is {}: not supported without longrope", *factor));
  }

  Status read_original_positions() {
    const std::string key = keys_.name("rope.scaling.original_context_length");
    out_.original_positions = FERRY_TRY(keys_.fields.integer(key, kGgufSizes));
    if (!out_.original_positions) {
      out_.missing.push_back(key);
    } else {
      out_.parameters["original_max_position_embeddings"] = *out_.original_positions;
    }
    return {};
  }

  Status read_yarn() {
    FERRY_RETURN_IF_ERROR(read_original_positions());
    constexpr std::pair<const char*, const char*> kNumbers[] = {
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"},
        {"rope.scaling.yarn_attn_factor", "attention_factor"}};
    for (const auto& [gguf, hf] : kNumbers) {
      if (const auto value = FERRY_TRY(number(gguf, kGgufReals))) out_.parameters[hf] = *value;
    }
    const auto truncate = FERRY_TRY(keys_.fields.flag(keys_.name("rope.scaling.yarn_truncate")));
    if (truncate) out_.parameters["truncate"] = *truncate;
    FERRY_RETURN_IF_ERROR(read_log_multiplier());
    // The reference always extrapolates fully.
    return refuse_other_than("rope.scaling.yarn_ext_factor", 1.0);
  }

  // Attention is scaled by the factor alone, or by mscale and mscale_all_dim. mscale is not in the
  // file. It is 1 or, where the key has a tenth of mscale_all_dim, equal to mscale_all_dim.
  Status read_log_multiplier() {
    constexpr const char* kKey = "rope.scaling.yarn_log_multiplier";
    const double unit = in_.architecture->log_multiplier;
    if (unit == 0) return refuse_other_than(kKey, 0.0);
    const auto value = FERRY_TRY(number(kKey, kFactors));
    if (!value || *value == 0) return {};
    out_.parameters["mscale_all_dim"] = *value / unit;
    out_.parameters["mscale"] = unit == 1.0 ? 1.0 : *value / unit;
    return {};
  }

  Status refuse_other_than(std::string_view key, double only) const {
    const auto value = FERRY_TRY(number(key, {-1e15, 1e15}));
    if (!value || *value == only) return {};
    return keys_.unsupported(key, fmt::format("is {}: only {} is supported", *value, only));
  }

  // -- tensors

  std::optional<size_t> find(std::string_view name) const {
    const auto& entries = in_.tensors->entries();
    const auto found = std::ranges::find(entries, name, &TensorEntry::name);
    if (found == entries.end()) return std::nullopt;
    return static_cast<size_t>(found - entries.begin());
  }

  Failure bad_tensor(const TensorEntry& entry, std::string_view what) const {
    return bad_input(fmt::format("{}: {} (tensor {} {})", printable(in_.tensors->path()), what,
                                 quoted(entry.name), to_string(entry.shape)));
  }

  Result<std::vector<float>> factors_of(size_t index) const {
    const TensorEntry& entry = in_.tensors->entries()[index];
    const bool fits =
        rotary_ == 0 || entry.bytes == static_cast<uint64_t>(rotary_) / 2 * sizeof(float);
    if (entry.dtype != DType::kF32 || entry.encoding != nullptr || entry.shape.size() != 1 ||
        !fits || entry.bytes > kMaxFactorBytes) {
      return bad_tensor(entry, fmt::format("expected f32, one for each pair of a head's {} "
                                           "dimensions",
                                           rotary_));
    }
    std::vector<float> factors(entry.bytes / sizeof(float));
    FERRY_RETURN_IF_ERROR(in_.tensors->read(index, 0, std::as_writable_bytes(std::span(factors))));
    for (size_t i = 0; i < factors.size(); ++i) {
      if (factors[i] >= kLeastFactor && factors[i] <= kMostFactor) continue;
      if (is_proportional() && factors[i] >= kUnturned) continue;
      return bad_tensor(entry, fmt::format("element {} is {}, not from {} to {}", i, factors[i],
                                           kLeastFactor, kMostFactor));
    }
    return factors;
  }

  Status read_tensors() {
    const auto frequencies = find(kFrequencies);
    const auto shorter = find(kShort);
    const auto longer = find(kLong);
    const bool sets = shorter || longer;
    const char* const first = frequencies ? kFrequencies : kShort;
    if (frequencies || sets) out_.tensor = first;
    const bool fits = type() == "default" || (type() == "longrope" && sets);
    if ((frequencies && sets) || ((frequencies || sets) && !fits)) {
      return keys_.unsupported("rope.scaling.type",
                               fmt::format("stands beside {}: not supported", first));
    }
    if (sets || type() == "longrope") return read_sets(shorter, longer);
    if (!frequencies && is_proportional()) {
      return bad_input(fmt::format("{}: has no tensor {}", printable(in_.tensors->path()),
                                   quoted(kFrequencies)));
    }
    return frequencies ? read_frequencies(*frequencies) : Status();
  }

  void write_longrope(double attention_factor) {
    out_.parameters["rope_type"] = "longrope";
    out_.parameters["short_factor"] = out_.factors;
    out_.parameters["long_factor"] = out_.long_factors;
    out_.parameters["attention_factor"] = attention_factor;
  }

  Status read_sets(std::optional<size_t> shorter, std::optional<size_t> longer) {
    for (const auto& [index, name] : {std::pair(shorter, kShort), std::pair(longer, kLong)}) {
      if (index) continue;
      return bad_input(
          fmt::format("{}: longrope needs the tensor '{}'", printable(in_.tensors->path()), name));
    }
    FERRY_RETURN_IF_ERROR(read_original_positions());
    out_.factors = FERRY_TRY(factors_of(*shorter));
    out_.long_factors = FERRY_TRY(factors_of(*longer));
    out_.attention_factor = FERRY_TRY(number("rope.scaling.attn_factor", kGgufReals));
    write_longrope(out_.attention_factor.value_or(1.0));
    return {};
  }

  Status read_frequencies(size_t index) {
    out_.factors = FERRY_TRY(factors_of(index));
    if (is_proportional()) {
      auto parameters = proportional_rope(in_.theta, out_.factors);
      if (parameters) {
        out_.parameters = *std::move(parameters);
        return {};
      }
      return bad_tensor(in_.tensors->entries()[index],
                        "the first pairs of a head have one divisor and the others 1e30");
    }
    if (const auto scaling = recover_llama3_scaling(in_.theta, out_.factors)) {
      out_.parameters["rope_type"] = "llama3";
      out_.parameters["factor"] = scaling->factor;
      out_.parameters["low_freq_factor"] = scaling->low_freq_factor;
      out_.parameters["high_freq_factor"] = scaling->high_freq_factor;
      out_.parameters["original_max_position_embeddings"] = scaling->original_max_positions;
      return {};
    }
    out_.long_factors = out_.factors;
    // The sets are equal, so any length will do.
    out_.original_positions = in_.max_positions > 1 ? in_.max_positions : INT32_MAX;
    out_.parameters["original_max_position_embeddings"] = *out_.original_positions;
    write_longrope(1.0);
    return {};
  }

  const GgufRopeInput& in_;
  const GgufKeys& keys_;
  int64_t rotary_;  // dimensions of each head with RoPE; 0 where the file does not say
  GgufRope out_;
};

bool gives(const RopeConfig& rope, const std::vector<double>& set,
           const std::vector<float>& factors, int64_t rotary_dim) {
  if (std::ssize(factors) != rotary_dim / 2) return false;
  RopeConfig one = rope;
  one.factors = set;
  return gives_rope_factors(one, factors);
}

}  // namespace

bool gives_rope_factors(const RopeConfig& rope, const std::vector<float>& factors) {
  RopeConfig plain = rope;
  plain.type = RopeConfig::Type::kDefault;
  plain.factors.clear();
  const auto rotary = static_cast<int64_t>(2 * factors.size());
  const std::vector<float> scaled = rope_inverse_frequencies(rope, rotary);
  const std::vector<float> unscaled = rope_inverse_frequencies(plain, rotary);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (scaled[i] == 0 && factors[i] >= kUnturned) continue;
    if (!same(double{unscaled[i]} / scaled[i], factors[i])) return false;
  }
  return true;
}

std::optional<RopeConfig> recover_llama3_scaling(double theta, const std::vector<float>& factors) {
  if (factors.empty()) return std::nullopt;
  for (const float f : factors) {
    if (!(f >= 1.0f && f <= 1e6f)) return std::nullopt;
  }
  const double factor = *std::ranges::max_element(factors);
  const std::vector<Between> between = frequencies_between(theta, factor, factors);
  std::vector<RopeConfig> candidates;
  const size_t step = between.size() / kMaxCandidates + 1;
  for (size_t i = 0; i < between.size(); i += step) {
    const Between& b = between[i];
    const double original = b.wave * (kLow + b.smooth * (kHigh - kLow));
    if (original < 1 || original > INT32_MAX) continue;
    candidates.push_back(llama3(theta, factor, kLow, kHigh, std::llround(original)));
  }
  // Without a factor in between many lengths give equal factors. Models have powers of two.
  for (int bits = 1; between.empty() && bits <= kMaxOriginalBits; ++bits) {
    candidates.push_back(llama3(theta, factor, kLow, kHigh, int64_t{1} << bits));
  }
  if (between.size() >= 2) {
    // smooth = (original / wave - low) / (high - low) is a line over 1 / wave.
    const Between a = between.front(), b = between.back();
    const double slope = (a.smooth - b.smooth) / (1 / a.wave - 1 / b.wave);
    const double low = slope / a.wave - a.smooth;     // in units of high - low
    const double original = std::round(slope / low);  // where low is 1
    if (slope > 0 && low > 0 && original >= 1 && original <= INT32_MAX) {
      candidates.push_back(llama3(theta, factor, low * original / slope,
                                  (1 + low) * original / slope, static_cast<int64_t>(original)));
    }
  }
  for (const RopeConfig& candidate : candidates) {
    if (gives_rope_factors(candidate, factors)) return candidate;
  }
  return std::nullopt;
}

Result<GgufRope> read_gguf_rope(const GgufRopeInput& input) { return RopeReader(input).run(); }

bool agrees_with(const RopeConfig& rope, int64_t rotary_dim, const GgufRope& stored) {
  if (stored.factors.empty()) return true;
  const bool two = rope.type == RopeConfig::Type::kLongRope;
  const std::vector<float>& longer =
      stored.long_factors.empty() ? stored.factors : stored.long_factors;
  if (!gives(rope, rope.factors, stored.factors, rotary_dim)) return false;
  if (!gives(rope, two ? rope.long_factors : rope.factors, longer, rotary_dim)) return false;
  const double attention = stored.attention_factor.value_or(1.0);
  return std::abs(rope.attention_factor - attention) <= kRelative * attention;
}

}  // namespace ferry::converters
