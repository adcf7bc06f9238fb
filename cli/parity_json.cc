#include "cli/parity_json.h"

namespace ferry::cli {

void write_metrics(JsonWriter& json, const proof::LogitMetrics& m) {
  json.member("max_abs", m.values.max_abs).member("mean_abs", m.values.mean_abs);
  json.member("rel_rms", m.values.rel_rms).member("cosine", m.values.cosine);
  json.member("sqnr_db", m.values.sqnr_db);
  // Of outputs that are no logits there are no distributions.
  const bool is_other = m.rows == 0 && m.values.count > 0;
  const auto of_logits = [&](double value) {
    return is_other ? std::nullopt : std::optional(value);
  };
  json.member("kl_mean", of_logits(m.kl_mean)).member("kl_max", of_logits(m.kl_max));
  json.member("top1_agreement", of_logits(m.top1_agreement));
}

void write_noise(JsonWriter& json, const proof::ValueMetrics& m) {
  const bool measured = m.noise_ratio.has_value();
  json.member("noise", measured ? std::optional(m.noise) : std::nullopt);
  json.member("bound", proof::noise_bound(m)).member("noise_ratio", m.noise_ratio);
  json.member("margin", proof::noise_margin(m));
}

}  // namespace ferry::cli
