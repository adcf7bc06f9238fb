#include "cli/parity_document.h"

#include <filesystem>
#include <map>

#include "cli/option_values.h"
#include "cli/parity_prompts.h"
#include "cli/verify_comparisons.h"
#include "cli/verify_report.h"
#include "cli/verify_sections.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "core/version.h"
#include "proof/compared_files.h"

namespace ferry::cli {
namespace {

using proof::ErrorPlace;

// The place of the largest difference of a tensor.
struct Worst {
  const ErrorPlace* place = nullptr;
  std::string prompt;
};
std::map<std::string, Worst> worst_places(const proof::ParityReport& report) {
  std::map<std::string, Worst> worst;
  for (const proof::CaseReport& one : report.cases) {
    if (!one.details) continue;
    for (const auto& [name, tensor] : one.details->tensors) {
      Worst& found = worst[name];
      if (!tensor.worst || (found.place && found.place->error >= tensor.worst->error)) continue;
      found = {&*tensor.worst, one.prompt};
    }
  }
  return worst;
}

void write_place(JsonWriter& json, const Worst& worst) {
  json.key("worst");
  if (worst.place == nullptr) {
    json.null();
    return;
  }
  const ErrorPlace& place = *worst.place;
  json.begin_object().member("prompt", worst.prompt).key("position");
  if (place.position) {
    json.value(*place.position);
  } else {
    json.null();
  }
  json.member("channel", place.channel);
  json.member("ours", static_cast<double>(place.got));
  json.member("expected", static_cast<double>(place.want)).end_object();
}

void write_layer(JsonWriter& json, const proof::LayerResult& layer, std::optional<double> limit,
                 const Worst& worst) {
  json.begin_object().member("name", layer.tensor.name).member("layer", layer.tensor.layer);
  json.member("max_abs", layer.metrics.max_abs);
  json.member("limit", limit);
  json.member("rel_rms", layer.metrics.rel_rms).member("cosine", layer.metrics.cosine);
  json.member("sqnr_db", layer.metrics.sqnr_db);
  json.member("floor_db", layer.floor_db);
  json.member("margin_db", layer.margin_db());
  write_noise(json, layer.metrics);
  json.member("scale", layer.metrics.scale).member("within", layer.within);
  write_place(json, worst);
  json.end_object();
}

void write_layers(JsonWriter& json, const proof::ParityReport& report, bool has_limits) {
  std::map<std::string, Worst> worst = worst_places(report);
  json.key("layers").begin_array();
  for (const proof::LayerResult& layer : report.layers) {
    const std::optional<double> limit = has_limits && !layer.metrics.noise_ratio
                                            ? report.bounds.limit(layer.tensor, layer.metrics.scale)
                                            : std::nullopt;
    write_layer(json, layer, limit, worst[layer.tensor.name]);
  }
  json.end_array();
  write_place(json, worst[report.output()]);
}

void write_divergence(JsonWriter& json, const proof::ParityReport& report) {
  json.key("first_divergence");
  if (!report.first_divergence) {
    json.null();
    return;
  }
  json.begin_object().member("layer", report.first_divergence->layer);
  json.member("tensor", report.first_divergence->tensor);
  json.member("text", place_of(report)).end_object();
}

void write_comparison(JsonWriter& json, const NamedComparison& comparison, TokenTexts& texts) {
  json.begin_object().member("id", comparison.id).member("title", comparison.title());
  json.member("ours", comparison.ours).member("expected", comparison.expected);
  if (comparison.report == nullptr) {
    json.member("absent", comparison.absent).end_object();
    return;
  }
  const proof::ParityReport& report = *comparison.report;
  const StatedBounds bounds = bounds_of(comparison);
  json.member("parity", report.parity).member("output", report.output());
  json.key("metrics").begin_object();
  write_metrics(json, report.metrics);
  json.member("greedy_match", report.greedy_match).member("greedy_total", report.greedy_total);
  json.end_object().key("bounds").begin_object();
  json.member("precision", bounds.precision).member("source", bounds.source);
  json.member("logits_max_abs", bounds.max_abs);
  json.member("logits_floor_db", bounds.floor_db);
  write_noise(json, report.metrics.values);
  json.end_object();
  write_divergence(json, report);
  write_layers(json, report, bounds.source == "verifier" || bounds.source == "argument");
  write_prompts(json, report, texts);
  json.end_object();
}

void write_bundle(JsonWriter& json, const packer::Bundle& bundle) {
  const packer::Manifest& manifest = bundle.manifest();
  json.key("bundle").begin_object().member("name", bundle_name(bundle));
  json.member("manifest_sha256", manifest_digest(manifest));
  json.member("bytes", bundle_bytes(bundle)).member("model_type", manifest.model_type);
  json.member("layers", manifest.num_layers).member("hidden_size", manifest.hidden_size);
  json.member("vocab_size", manifest.vocab_size);
  json.member("context_length", manifest.context_length);
  json.member("weight_dtype", manifest.weight_dtype);
  json.member("quantization", quantization_of(manifest));
  json.member("program_style", manifest.program_style).end_object();
}

void write_reference(JsonWriter& json, const proof::Verification* v) {
  json.key("reference");
  if (v == nullptr || !v->reference_file) {
    json.null();
    return;
  }
  const proof::ReferenceFile& file = *v->reference_file;
  json.begin_object().member("name", file.name).member("embedded", file.embedded);
  json.member("bytes", file.bytes).member("sha256", file.sha256);
  json.member("prompts", file.prompts).end_object();
}

void write_checkpoint(JsonWriter& json, const ReportInput& input) {
  json.key("checkpoint");
  if (input.options.checkpoint.empty()) {
    json.null();
    return;
  }
  json.begin_object().member("name", base_name(input.options.checkpoint));
  if (input.verification != nullptr && input.verification->proof) {
    const auto& files = input.verification->proof->source_files;
    proof::write_source_files(json, files);
    json.member("same_as_manifest", proof::same_files(files, input.bundle.manifest().source_files));
  }
  json.end_object();
}

void write_against(JsonWriter& json, const ReportInput& input) {
  json.key("against");
  if (input.options.against.empty()) {
    json.null();
    return;
  }
  json.begin_object().member("name", base_name(input.options.against)).key("manifest_sha256");
  if (input.verification != nullptr && input.verification->other) {
    json.value(manifest_digest(input.verification->other->manifest()));
  } else {
    json.null();
  }
  json.end_object();
}

void write_given(JsonWriter& json, std::string_view name, const std::string& path) {
  json.key(name);
  if (path.empty()) {
    json.null();
  } else {
    json.value(base_name(path));
  }
}

void write_options(JsonWriter& json, const proof::BundleProofOptions& options) {
  json.key("options").begin_object();
  json.member("tolerance", options.tolerance);
  json.key("mode");
  if (options.mode) {
    json.value(name_of(*options.mode));
  } else {
    json.null();
  }
  write_given(json, "config", options.config);
  write_given(json, "calibrate", options.calibrate);
  write_given(json, "calibrate_prefill", options.calibrate_prefill);
  write_given(json, "calibrate_weights", options.calibrate_weights);
  json.key("images").begin_array();
  for (const std::string& image : options.images) json.value(base_name(image));
  json.end_array().end_object();
}

void write_counts(JsonWriter& json, std::string_view name, uint64_t compared,
                  const std::vector<std::string>& different, std::optional<uint64_t> bytes) {
  json.key(name).begin_object().member("compared", compared);
  json.member("equal", compared - std::min<uint64_t>(compared, different.size()));
  if (bytes) json.member("bytes", *bytes);
  json.member("different", different);
  json.end_object();
}

void write_checkpoint_proof(JsonWriter& json, const proof::Verification* v) {
  if (v == nullptr || !v->proof || !v->proof->made_again) {
    for (const char* name : {"weights", "programs", "encodings", "quantization"}) {
      json.key(name).null();
    }
    return;
  }
  const proof::CheckpointProof& proof = *v->proof;
  write_counts(json, "weights", proof.tensors.tensors, proof.tensors.different,
               proof.tensors.bytes);
  write_counts(json, "programs", proof.programs.programs, proof.programs.different, {});
  json.key("encodings");
  if (proof.encodings) {
    json.begin_object();
    json.member("different", *proof.encodings);
    json.end_object();
  } else {
    json.null();
  }
  if (proof.tensors.errors.empty()) {
    json.key("quantization").null();
  } else {
    write_quantization(json, proof.tensors.errors);
  }
}

void write_verdict(JsonWriter& json, const proof::Verification* v) {
  if (v == nullptr) {
    json.key("parity").null().member("verdict", "perplexity: a measurement, without a verdict");
    for (const char* name : {"reasons", "proves", "does_not_prove"})
      json.key(name).begin_array().end_array();
    return;
  }
  json.member("parity", v->parity()).member("verdict", verdict_line(*v));
  const Meaning meaning = meaning_of(*v);
  json.member("reasons", v->parity() ? std::vector<std::string>{} : reasons(*v));
  json.member("proves", v->parity() ? meaning.proves : std::vector<std::string>{});
  json.member("does_not_prove", meaning.leaves_open);
}

void write_comparisons(JsonWriter& json, const ReportInput& input) {
  json.key("comparisons").begin_array();
  if (input.verification != nullptr) {
    TokenTexts texts(input.bundle);
    for (const NamedComparison& comparison : comparisons_of(*input.verification)) {
      write_comparison(json, comparison, texts);
    }
  }
  json.end_array();
}

}  // namespace

std::string bundle_name(const packer::Bundle& bundle) {
  std::error_code error;
  const auto path = std::filesystem::canonical(bundle.path(), error);
  return error ? base_name(bundle.path()) : path.filename().string();
}

std::string manifest_digest(const packer::Manifest& manifest) {
  // The manifest ends with the member `"manifest_sha256": "64 digits"` and the end of the object.
  const std::string text = packer::write_manifest(manifest);
  const size_t end = text.rfind('"');
  constexpr size_t kDigits = 64;
  return end == std::string::npos || end < kDigits ? std::string()
                                                   : text.substr(end - kDigits, kDigits);
}

uint64_t bundle_bytes(const packer::Bundle& bundle) {
  uint64_t bytes = packer::write_manifest(bundle.manifest()).size();
  for (const packer::ManifestFile& file : bundle.manifest().files) bytes += file.bytes;
  return bytes;
}

std::string quantization_of(const packer::Manifest& manifest) {
  const packer::ManifestComponent* main = manifest.main();
  return main == nullptr ? std::string() : main->quantization;
}

std::string parity_document(const ReportInput& input) {
  JsonWriter json;
  json.begin_object().member(kReportMark, 1).member("ferry", version());
  write_verdict(json, input.verification);
  write_bundle(json, input.bundle);
  write_reference(json, input.verification);
  write_checkpoint(json, input);
  write_against(json, input);
  write_options(json, input.options);
  write_checkpoint_proof(json, input.verification);
  if (input.verification != nullptr && !input.verification->pixels.empty()) {
    write_pixels(json, input.verification->pixels);
  } else {
    json.key("pixels").begin_array().end_array();
  }
  write_comparisons(json, input);
  if (input.perplexity != nullptr) {
    write_perplexity(json, *input.perplexity);
  } else {
    json.key("perplexity").null();
  }
  json.end_object();
  return json.take();
}

}  // namespace ferry::cli
