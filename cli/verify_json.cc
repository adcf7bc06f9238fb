#include "cli/verify_report.h"

#include <vector>

#include "cli/verify_comparisons.h"
#include "cli/verify_sections.h"
#include "core/json_writer.h"

namespace ferry::cli {
namespace {

void write_layer_results(JsonWriter& json, const std::vector<proof::LayerResult>& layers) {
  json.key("layers").begin_array();
  for (const proof::LayerResult& layer : layers) {
    json.begin_object();
    json.member("name", layer.tensor.name).member("layer", layer.tensor.layer);
    json.member("max_abs", layer.metrics.max_abs).member("sqnr_db", layer.metrics.sqnr_db);
    json.member("floor_db", layer.floor_db);
    json.member("margin_db", layer.margin_db());
    write_noise(json, layer.metrics);
    json.member("scale", layer.metrics.scale).member("within", layer.within);
    json.end_object();
  }
  json.end_array();
}

void write_logit_metrics(JsonWriter& json, const char* name, const proof::LogitMetrics& m) {
  json.key(name).begin_object();
  json.member("rows", m.rows);
  write_metrics(json, m);
  json.end_object();
}

void write_routing_result(JsonWriter& json, const proof::RoutingReport& routing) {
  if (routing.choices == 0) return;
  json.key("routing").begin_object();
  json.member("choices", routing.choices).member("different", routing.different);
  json.end_object();
}

void write_lookahead(JsonWriter& json, const runner::LookaheadCounts& counts) {
  json.key("lookahead").begin_object();
  json.member("generated", counts.generated).member("accepted", counts.accepted);
  json.end_object();
}

void write_case(JsonWriter& json, const proof::CaseReport& c) {
  json.begin_object();
  json.member("prompt", c.prompt).member("tokens", c.tokens);
  if (!c.skipped.empty()) {
    json.member("skipped", c.skipped).end_object();
    return;
  }
  json.member("parity", c.parity);
  json.key("metrics").begin_object();
  write_metrics(json, c.worst());
  json.member("greedy_match", c.greedy_match).member("greedy_total", c.greedy_total);
  json.end_object();
  write_logit_metrics(json, "prefill", c.prefill);
  write_logit_metrics(json, "steps", c.steps);
  write_logit_metrics(json, "greedy", c.greedy);
  write_routing_result(json, c.routing);
  if (c.lookahead) write_lookahead(json, *c.lookahead);
  write_layer_results(json, c.layers);
  if (c.f64) {
    json.key("f64").begin_object();
    json.member("ours_max_abs", c.f64->ours).member("reference_max_abs", c.f64->reference);
    json.member("nearer", c.f64->ours <= c.f64->reference ? "ours" : "reference");
    json.end_object();
  }
  json.key("not_compared").begin_array();
  for (const std::string& tensor : c.not_compared) json.value(tensor);
  json.end_array().end_object();
}

void write_tolerance(JsonWriter& json, const proof::ParityReport& report) {
  const proof::ParityBounds& bounds = report.bounds;
  json.key("tolerance").begin_object();
  json.member("logits_max_abs", report.output_limit());
  json.member("layers_scaled", report.output_limit() ? bounds.max_abs : std::nullopt);
  json.member("logits_floor_db", report.logits_floor_db);
  write_noise(json, report.metrics.values);
  json.member("precision", rounding_name(bounds)).member("source", bound_source(report));
  json.end_object();
}

// Writes the members of one report, without its cases.
void write_summary(JsonWriter& json, const proof::ParityReport& report) {
  json.member("output", report.output());
  json.key("metrics").begin_object();
  write_metrics(json, report.metrics);
  json.member("greedy_match", report.greedy_match).member("greedy_total", report.greedy_total);
  json.end_object();
  write_routing_result(json, report.routing);
  write_layer_results(json, report.layers);
  json.key("first_divergence");
  if (report.first_divergence) {
    json.begin_object();
    json.member("layer", report.first_divergence->layer);
    json.member("tensor", report.first_divergence->tensor);
    json.end_object();
  } else {
    json.null();
  }
  write_tolerance(json, report);
}

void write_parity_report(JsonWriter& json, const proof::ParityReport& report) {
  write_summary(json, report);
  json.key("cases").begin_array();
  for (const proof::CaseReport& c : report.cases) write_case(json, c);
  json.end_array();
}

void write_named(JsonWriter& json, const char* name, const proof::ParityReport& report) {
  json.key(name).begin_object();
  json.member("parity", report.parity);
  write_parity_report(json, report);
  json.end_object();
}

void write_codes(JsonWriter& json, const proof::CodedProof& codes) {
  json.key("own_weights").begin_object();
  if (codes.absent.empty()) {
    write_named(json, "in_f32", codes.exact);
    write_named(json, "activations", codes.activations);
  } else {
    json.member("absent", codes.absent);
  }
  json.end_object();
}

void write_proof(JsonWriter& json, const proof::CheckpointProof& proof) {
  json.key("tensors").begin_object();
  if (proof.matched) {
    json.member("compared", proof.matched->found()).member("bytes", proof.matched->bytes());
    json.member("different", proof.matched->different());
  } else {
    json.member("compared", proof.tensors.tensors).member("bytes", proof.tensors.bytes);
    json.member("different", proof.tensors.different);
  }
  json.end_object();
  write_quantization(json, proof.tensors.errors);
  json.key("programs").begin_object();
  json.member("compared", proof.programs.programs);
  json.member("different", proof.programs.different);
  json.end_object();
  if (proof.encodings) {
    json.key("encodings").begin_object();
    json.member("different", *proof.encodings);
    json.end_object();
  }
  if (!proof.problem.empty()) json.member("problem", proof.problem);
  if (proof.f32_path) write_named(json, "f32_path", *proof.f32_path);
  if (proof.f64_path) write_named(json, "f64_path", *proof.f64_path);
  if (proof.codes) write_codes(json, *proof.codes);
}

void write_modes(JsonWriter& json, const proof::Verification& v) {
  json.key("modes").begin_array();
  for (const proof::ModeProof& mode : v.modes) {
    json.begin_object().member("mode", name_of(mode.mode));
    if (mode.report) {
      json.member("against", name_of(runner::DecodeMode::kKv)).member("parity", mode.parity());
      if (mode.mode == runner::DecodeMode::kLookahead) write_lookahead(json, mode.lookahead);
      write_summary(json, *mode.report);
      if (mode.in_f32) {
        json.key("in_f32").begin_object().member("parity", mode.in_f32->parity);
        write_summary(json, *mode.in_f32);
        json.end_object();
      }
    } else {
      json.member("absent", mode.absent);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string to_json(const proof::Verification& v, const std::string& path) {
  JsonWriter json;
  json.begin_object();
  json.member("path", path).member("parity", v.parity());
  json.member("verdict", verdict_name(v.verdict()));
  const Meaning meaning = meaning_of(v);
  json.member("proves", v.parity() ? meaning.proves : std::vector<std::string>{});
  json.member("does_not_prove", meaning.leaves_open);
  if (v.proof) write_proof(json, *v.proof);
  if (v.rounding) {
    write_named(json, "in_f32", v.rounding->in_f32);
    write_named(json, "rounding", v.rounding->rounding);
  }
  if (v.outputs() != nullptr) write_parity_report(json, *v.outputs());
  if (!v.against.empty()) json.member("against", v.against);
  if (!v.modes.empty()) write_modes(json, v);
  write_pixels(json, v.pixels);
  json.end_object();
  return json.take();
}

void write_metrics(JsonWriter& json, const proof::LogitMetrics& m) {
  json.member("max_abs", m.values.max_abs).member("mean_abs", m.values.mean_abs);
  json.member("rel_rms", m.values.rel_rms).member("cosine", m.values.cosine);
  json.member("sqnr_db", m.values.sqnr_db);
  // Only logits have distributions; outputs of encoders do not.
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
