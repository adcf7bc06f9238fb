#include <ferry/verify.h>

#include <cmath>
#include <utility>

#include "core/json_writer.h"
#include "library/internal.h"
#include "proof/bundle_proof.h"

namespace ferry {
inline namespace v0 {
namespace {

Verdict verdict_of(proof::Verdict verdict) {
  switch (verdict) {
    case proof::Verdict::kProved:
      return Verdict::kProved;
    case proof::Verdict::kNotProved:
      return Verdict::kNotProved;
    case proof::Verdict::kNoParity:
      break;
  }
  return Verdict::kNoParity;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProved:
      return "proved";
    case Verdict::kNotProved:
      return "not_proved";
    case Verdict::kNoParity:
      break;
  }
  return "no_parity";
}

ErrorMetrics metrics_of(const proof::ValueMetrics& from) {
  return {from.max_abs, from.mean_abs, from.rel_rms, from.cosine, from.sqnr_db};
}

void add_outputs(const proof::ParityReport& report, Verification& to) {
  to.output = report.output();
  to.errors = metrics_of(report.metrics.values);
  to.kl_mean = report.metrics.kl_mean;
  to.kl_max = report.metrics.kl_max;
  to.top1_agreement = report.metrics.top1_agreement;
  to.greedy_match = report.greedy_match;
  to.greedy_total = report.greedy_total;
  if (report.first_divergence) to.first_divergence = report.first_divergence->tensor;
  for (const proof::LayerResult& layer : report.layers) {
    to.tensors.push_back({layer.tensor.name, metrics_of(layer.metrics), layer.within});
  }
  for (const proof::CaseReport& prompt : report.cases) {
    to.prompts.push_back({prompt.prompt, prompt.tokens, prompt.skipped, prompt.greedy_match,
                          prompt.greedy_total, prompt.parity});
  }
}

proof::BundleProofOptions settle(const VerifyOptions& from, const OnProgress& progress) {
  proof::BundleProofOptions options;
  options.reference = from.reference;
  options.checkpoint = from.checkpoint;
  options.config = from.config;
  options.lora = from.lora;
  options.mmproj = from.mmproj;
  options.calibrate_weights = from.calibrate_weights;
  options.against = from.against;
  options.images = from.images;
  options.tolerance = from.tolerance;
  options.memory = from.memory;
  if (progress) {
    options.progress = [&progress](const char* label, ProgressUnit) {
      return library::show(progress, label);
    };
  }
  return options;
}

void write_errors(const ErrorMetrics& errors, JsonWriter& json) {
  json.member("max_abs", errors.max_abs).member("mean_abs", errors.mean_abs);
  json.member("relative_rms", errors.relative_rms).member("cosine", errors.cosine);
  json.member("sqnr_db", errors.sqnr_db);
}

void write_outputs(const Verification& v, JsonWriter& json) {
  json.member("output", v.output).key("errors").begin_object();
  write_errors(v.errors, json);
  json.end_object().member("kl_mean", v.kl_mean).member("kl_max", v.kl_max);
  json.member("top1_agreement", v.top1_agreement).member("greedy_match", v.greedy_match);
  json.member("greedy_total", v.greedy_total).member("first_divergence", v.first_divergence);
  json.key("tensors").begin_array();
  for (const TensorComparison& tensor : v.tensors) {
    json.begin_object().member("name", tensor.name);
    write_errors(tensor.errors, json);
    json.member("within_bounds", tensor.within_bounds).end_object();
  }
  json.end_array().key("prompts").begin_array();
  for (const PromptComparison& prompt : v.prompts) {
    json.begin_object().member("prompt", prompt.prompt).member("tokens", prompt.tokens);
    json.member("skipped", prompt.skipped).member("greedy_match", prompt.greedy_match);
    json.member("greedy_total", prompt.greedy_total).member("parity", prompt.parity).end_object();
  }
  json.end_array();
}

}  // namespace

Result<Verification> verify(const Bundle& bundle, const VerifyOptions& options,
                            const Engine& engine, const OnProgress& progress) {
  const packer::Bundle& files = bundle.impl().bundle;
  return library::run(engine, files.path(), [&](ThreadPool& pool) -> Result<Verification> {
    if (bundle.impl().has_blocks) {
      return library::wrong("bundle", "is a GGUF file: open it with `exact` to verify it");
    }
    if (options.tolerance && !(*options.tolerance >= 0 && std::isfinite(*options.tolerance))) {
      return library::wrong("tolerance", "must be a finite number that is not negative");
    }
    const proof::Verification proved =
        FERRY_TRY(proof::prove_bundle(files, settle(options, progress), pool));
    Verification verification;
    verification.verdict = verdict_of(proved.verdict());
    if (const proof::ParityReport* outputs = proved.outputs()) add_outputs(*outputs, verification);
    if (proved.proof) {
      const proof::WeightProof& weights = proved.proof->tensors;
      verification.checkpoint = CheckpointComparison{
          weights.tensors, weights.bytes, weights.different, proved.proof->programs.ok()};
    }
    return verification;
  });
}

std::string to_json(const Verification& verification) {
  JsonWriter json;
  json.begin_object().member("verdict", name_of(verification.verdict));
  write_outputs(verification, json);
  if (verification.checkpoint) {
    const CheckpointComparison& checkpoint = *verification.checkpoint;
    json.key("checkpoint").begin_object();
    json.member("tensors", checkpoint.tensors).member("bytes", checkpoint.bytes);
    json.key("different_weights").begin_array();
    for (const std::string& line : checkpoint.different_weights) json.value(line);
    json.end_array().member("programs_equal", checkpoint.programs_equal).end_object();
  }
  return json.end_object().take();
}

}  // namespace v0
}  // namespace ferry
