// ferry verify: parity of a bundle with a reference.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/checkpoint_proof.h"
#include "cli/json_writer.h"
#include "cli/verbs.h"
#include "core/text.h"
#include "formats/checkpoint.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"
#include "runner/reference.h"
#include "runner/verify.h"

namespace ferry::cli {
namespace {

struct Options {
  std::string bundle;
  std::string reference;
  std::string checkpoint, config;
  std::optional<double> tolerance;
};

// -- JSON
// ------------------------------------------------------------------------------------------

void write_metrics(JsonWriter& json, const LogitMetrics& m) {
  json.member("max_abs", m.values.max_abs).member("mean_abs", m.values.mean_abs);
  json.member("rel_rms", m.values.rel_rms).member("cosine", m.values.cosine);
  json.member("sqnr_db", m.values.sqnr_db).member("kl_mean", m.kl_mean);
  json.member("top1_agreement", m.top1_agreement);
}

void write_layers(JsonWriter& json, const std::vector<LayerResult>& layers) {
  json.key("layers").begin_array();
  for (const LayerResult& layer : layers) {
    json.begin_object();
    json.member("name", layer.name).member("layer", layer.layer);
    json.member("max_abs", layer.metrics.max_abs).member("sqnr_db", layer.metrics.sqnr_db);
    json.member("scale", layer.metrics.scale).member("within", layer.within);
    json.end_object();
  }
  json.end_array();
}

void write_way(JsonWriter& json, const char* name, const LogitMetrics& m) {
  json.key(name).begin_object();
  json.member("rows", m.rows);
  write_metrics(json, m);
  json.end_object();
}

void write_case(JsonWriter& json, const CaseReport& c) {
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
  write_way(json, "prefill", c.prefill);
  write_way(json, "steps", c.steps);
  write_way(json, "greedy", c.greedy);
  write_layers(json, c.layers);
  if (c.truth) {
    json.key("f64").begin_object();
    json.member("ours_max_abs", c.truth->ours).member("reference_max_abs", c.truth->reference);
    json.member("nearer", c.truth->ours <= c.truth->reference ? "ours" : "reference");
    json.end_object();
  }
  json.key("not_compared").begin_array();
  for (const std::string& tensor : c.not_compared) json.value(tensor);
  json.end_array().end_object();
}

void write_tensors(JsonWriter& json, const TensorProof& proof) {
  json.key("tensors").begin_object();
  json.member("compared", proof.tensors).member("bytes", proof.bytes);
  json.key("different").begin_array();
  for (const std::string& line : proof.different) json.value(line);
  json.end_array().end_object();
}

// `tensors` is null unless a checkpoint was compared with.
std::string to_json(const ParityReport& report, const TensorProof* tensors,
                    const char* tolerance_source) {
  JsonWriter json;
  json.begin_object();
  json.member("parity", report.parity && (tensors == nullptr || tensors->ok()));
  if (tensors != nullptr) write_tensors(json, *tensors);
  json.key("metrics").begin_object();
  write_metrics(json, report.metrics);
  json.member("greedy_match", report.greedy_match).member("greedy_total", report.greedy_total);
  json.end_object();
  write_layers(json, report.layers);
  json.key("first_divergence");
  if (report.first_divergence) {
    json.begin_object();
    json.member("layer", report.first_divergence->layer);
    json.member("tensor", report.first_divergence->tensor);
    json.end_object();
  } else {
    json.null();
  }
  json.key("tolerance").begin_object();
  json.member("logits_max_abs", report.tolerance).member("layers_scaled", report.tolerance);
  json.member("source", tolerance_source);
  json.end_object();
  json.key("cases").begin_array();
  for (const CaseReport& c : report.cases) write_case(json, c);
  json.end_array().end_object();
  return json.take();
}

// -- text
// ------------------------------------------------------------------------------------------

std::string number(double value) {
  return value == kBeyondAnyBound ? "not finite" : fmt::format("{:.2e}", value);
}

std::string case_lines(const CaseReport& c) {
  const std::string name = c.prompt.empty() ? "prompt" : quoted(c.prompt);
  if (!c.skipped.empty()) return fmt::format("{}: skipped, {}\n", name, c.skipped);
  std::string text = fmt::format(
      "{}: {}, {} tokens: max_abs {} in one prefill, {} token by token, greedy {}/{}\n", name,
      c.parity ? "parity" : "NO PARITY", c.tokens, number(c.prefill.values.max_abs),
      number(c.steps.values.max_abs), c.greedy_match, c.greedy_total);
  if (c.truth) {
    text += fmt::format("  from the f64 logits: ours {}, the reference's {}\n",
                        number(c.truth->ours), number(c.truth->reference));
  }
  if (!c.not_compared.empty()) {
    text += fmt::format("  {} tensors of the reference have no counterpart in the bundle\n",
                        c.not_compared.size());
  }
  return text;
}

std::string tensor_lines(const TensorProof& proof) {
  std::string text;
  for (const std::string& line : proof.different) text += "  " + line + "\n";
  return text + fmt::format("tensors: {} of {} derived again from the checkpoint, bit for bit ({})\n",
                            proof.tensors - std::min<uint64_t>(proof.tensors, proof.different.size()),
                            proof.tensors, human_bytes(proof.bytes));
}

std::string to_text(const ParityReport& report) {
  std::string text;
  for (const CaseReport& c : report.cases) text += case_lines(c);
  const LogitMetrics& m = report.metrics;
  fmt::format_to(std::back_inserter(text),
                 "logits: max_abs {} (bound {:g}), rel_rms {}, cosine {:.9f}, SQNR {:.1f} dB, "
                 "KL {}, top-1 {:.2f} %\n",
                 number(m.values.max_abs), report.tolerance, number(m.values.rel_rms),
                 m.values.cosine, m.values.sqnr_db, number(m.kl_mean), 100 * m.top1_agreement);
  for (const LayerResult& layer : report.layers) {
    fmt::format_to(std::back_inserter(text), "  {:26} max_abs {:>10}  SQNR {:6.1f} dB{}\n",
                   layer.name, number(layer.metrics.max_abs), layer.metrics.sqnr_db,
                   layer.within ? "" : "  DIVERGES");
  }
  text += report.parity ? "parity\n" : "no parity\n";
  return text;
}

std::string where(const Divergence& divergence, int64_t num_layers) {
  if (divergence.layer < 0) return fmt::format("the embedding ({})", divergence.tensor);
  if (divergence.layer >= num_layers) return fmt::format("the head ({})", divergence.tensor);
  return fmt::format("layer {} ({})", divergence.layer, divergence.tensor);
}

// -- the verb
// --------------------------------------------------------------------------------------

// What the bundle is compared with: outputs, and weights where a checkpoint was given.
struct Evidence {
  std::unique_ptr<TensorSource> reference;
  std::optional<TensorProof> tensors;
};

Result<Evidence> gather(Context& context, const Options& options, const Bundle& bundle) {
  Evidence evidence;
  if (!options.checkpoint.empty()) {
    CheckpointProof proof = FERRY_TRY(
        prove_from_checkpoint(context, bundle, options.checkpoint, options.config));
    evidence.tensors = std::move(proof.tensors);
    evidence.reference = std::move(proof.reference);
    return evidence;
  }
  std::string path = options.reference;
  if (path.empty() && !bundle.manifest().reference.empty()) {
    path = bundle.path() + "/" + bundle.manifest().reference;
  }
  if (path.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: the bundle has no embedded reference; give --reference FILE or "
                            "--checkpoint SRC",
                            options.bundle));
  }
  evidence.reference = FERRY_TRY(open_checkpoint(path));
  return evidence;
}

Status check_options(const Options& options) {
  if (options.tolerance && !(*options.tolerance >= 0)) {
    return fail(ErrorCode::kUsage, "--tolerance must not be negative");
  }
  if (!options.checkpoint.empty() && !options.reference.empty()) {
    return fail(ErrorCode::kUsage, "--reference and --checkpoint exclude each other");
  }
  if (options.checkpoint.empty() && !options.config.empty()) {
    return fail(ErrorCode::kUsage, "--config belongs to --checkpoint");
  }
  return {};
}

void explain(const Options& options, const Bundle& bundle, const ParityReport& report,
             const std::optional<TensorProof>& tensors) {
  if (tensors && !tensors->ok()) {
    fmt::print(stderr, "ferry: no parity: {}: {} of {} weights are not those of the checkpoint\n",
               options.bundle, tensors->different.size(), tensors->tensors);
  }
  if (report.parity) return;
  fmt::print(stderr,
             "ferry: no parity: {}: max_abs {}, bound {:g}, greedy {}/{}, first divergence in {}\n",
             options.bundle, number(report.metrics.values.max_abs), report.tolerance,
             report.greedy_match, report.greedy_total,
             where(*report.first_divergence, bundle.manifest().num_layers));
}

Result<int> verify_bundle(Context& context, const Options& options) {
  FERRY_CHECK(check_options(options));
  const Bundle bundle =
      FERRY_TRY(Bundle::open(options.bundle, /*check_digests=*/true, context.pool()));
  const Evidence evidence = FERRY_TRY(gather(context, options, bundle));
  const Reference reference = FERRY_TRY(Reference::open(*evidence.reference));
  Decoder decoder = FERRY_TRY(Decoder::load(bundle, context.pool(), {}));
  const double tolerance = options.tolerance.value_or(bundle.manifest().default_tolerance);
  const ParityReport report = FERRY_TRY(verify(decoder, bundle.manifest(), reference, tolerance));
  const TensorProof* tensors = evidence.tensors ? &*evidence.tensors : nullptr;
  if (context.json) {
    context.print(to_json(report, tensors, options.tolerance ? "argument" : "manifest"));
  } else if (!context.quiet) {
    if (tensors != nullptr) context.print(tensor_lines(*tensors));
    context.print(to_text(report));
  }
  if (report.parity && (tensors == nullptr || tensors->ok())) return 0;
  context.flush();
  explain(options, bundle, report, evidence.tensors);
  return 1;
}

}  // namespace

void add_verify(CommandLine& line) {
  auto options = std::make_shared<Options>();
  line.verb("verify", "Compare what a bundle computes with a reference")
      .positional("BUNDLE", options->bundle, "Bundle directory")
      .option("--reference", options->reference,
              "Expected outputs (safetensors or HDF5); default: the reference in the bundle")
      .option("--checkpoint", options->checkpoint,
              "The checkpoint that the bundle was made of: derives every weight again, and compares "
              "with the unsharded f32 path")
      .option("--config", options->config, "With --checkpoint: as for convert")
      .option("--tolerance", options->tolerance,
              "Largest absolute logit error; default: by dtype, see docs/verifying.md")
      .action([options](Context& context) { return verify_bundle(context, *options); });
}

}  // namespace ferry::cli
