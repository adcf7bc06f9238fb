#include "cli/parity_json.h"

namespace ferry::cli {

void write_metrics(JsonWriter& json, const proof::LogitMetrics& m) {
  json.member("max_abs", m.values.max_abs).member("mean_abs", m.values.mean_abs);
  json.member("rel_rms", m.values.rel_rms).member("cosine", m.values.cosine);
  json.member("sqnr_db", m.values.sqnr_db);
  json.member("kl_mean", m.kl_mean).member("kl_max", m.kl_max);
  json.member("top1_agreement", m.top1_agreement);
}

}  // namespace ferry::cli
