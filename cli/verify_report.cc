#include "cli/verify_report.h"
#include "cli/pixel_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

// -- what is proved

// What a verdict of parity means, and what it does not.
struct Meaning {
  std::vector<std::string> proves, leaves_open;
};

std::string rounding_name(const proof::ParityBounds& bounds) {
  return bounds.rounding ? std::string(dtype_name(*bounds.rounding)) : "f32";
}

std::string within(const pipeline::Verification& v, const proof::ParityBounds& bounds) {
  if (v.tolerance_given) return " within --tolerance";
  if (!bounds.rounding) return {};
  return fmt::format(" within the error of {} rounding", rounding_name(bounds));
}

Meaning outputs_meaning(const pipeline::Verification& v) {
  Meaning m;
  if (v.proof) {
    m.proves.push_back("every stored weight is, bit for bit, what the checkpoint gives");
    m.proves.push_back(
        "every program is, byte for byte, what this version of Ferry makes of the checkpoint");
    if (v.proof->encodings) {
      m.proves.push_back("every encoding is what calibration gives, for its prompts");
    }
    if (v.has_reference) {
      m.proves.push_back("the checkpoint's model in f32 computes what the reference says");
    } else {
      m.leaves_open.push_back(
          "that Ferry computes what the original model computes: add --reference");
    }
    if (v.outputs() != nullptr && v.outputs()->bounds.rounding) {
      m.proves.push_back(fmt::format("the bundle differs from the f32 path by {} rounding only",
                                     rounding_name(v.outputs()->bounds)));
    }
    return m;
  }
  if (!v.against.empty()) {
    m.proves.push_back(fmt::format("the bundle computes what {} computes{}, for these prompts",
                                   quoted(v.against), within(v, v.direct->bounds)));
    m.leaves_open.push_back(fmt::format(
        "that {} is right: verify it with --reference or --checkpoint", quoted(v.against)));
    m.leaves_open.push_back("weights that these prompts do not use: use --checkpoint");
    return m;
  }
  m.leaves_open.push_back("weights that the prompts of the reference do not use: add --checkpoint");
  if (v.direct) {
    m.proves.push_back(v.tolerance_given
                           ? "the bundle is within --tolerance of the reference, for its prompts"
                           : "the bundle computes what the reference says, for its prompts");
    return m;
  }
  const std::string dtype = rounding_name(v.rounding->outputs.bounds);
  if (v.rounding->exact_weights) {
    m.proves.push_back(
        "the bundle's program with activations in f32 computes what the reference says, for its "
        "prompts");
    m.proves.push_back(
        fmt::format("the bundle differs from that by {} rounding of activations only", dtype));
    return m;
  }
  m.proves.push_back(fmt::format(
      "the bundle is within the error of {} rounding of the reference, for its prompts", dtype));
  m.leaves_open.push_back(fmt::format(
      "mistakes that change outputs by less than {} rounding of weights: add --checkpoint", dtype));
  return m;
}

Meaning meaning_of(const pipeline::Verification& v) {
  Meaning m = outputs_meaning(v);
  for (const proof::ModeProof& mode : v.modes) {
    if (!mode.report) continue;
    m.proves.push_back(fmt::format("mode {} computes what mode kv computes{}, for these prompts",
                                   name_of(mode.mode), within(v, mode.report->bounds)));
  }
  return m;
}

// -- JSON

void write_metrics(JsonWriter& json, const proof::LogitMetrics& m) {
  json.member("max_abs", m.values.max_abs).member("mean_abs", m.values.mean_abs);
  json.member("rel_rms", m.values.rel_rms).member("cosine", m.values.cosine);
  json.member("sqnr_db", m.values.sqnr_db).member("kl_mean", m.kl_mean);
  json.member("top1_agreement", m.top1_agreement);
}

void write_optional(JsonWriter& json, const char* name, const std::optional<double>& value) {
  json.key(name);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

std::optional<double> margin_of(const proof::LayerResult& layer) {
  if (!layer.floor_db) return std::nullopt;
  return layer.metrics.sqnr_db - *layer.floor_db;
}

void write_layers(JsonWriter& json, const std::vector<proof::LayerResult>& layers) {
  json.key("layers").begin_array();
  for (const proof::LayerResult& layer : layers) {
    json.begin_object();
    json.member("name", layer.tensor.name).member("layer", layer.tensor.layer);
    json.member("max_abs", layer.metrics.max_abs).member("sqnr_db", layer.metrics.sqnr_db);
    write_optional(json, "floor_db", layer.floor_db);
    write_optional(json, "margin_db", margin_of(layer));
    json.member("scale", layer.metrics.scale).member("within", layer.within);
    json.end_object();
  }
  json.end_array();
}

void write_part(JsonWriter& json, const char* name, const proof::LogitMetrics& m) {
  json.key(name).begin_object();
  json.member("rows", m.rows);
  write_metrics(json, m);
  json.end_object();
}

void write_routing(JsonWriter& json, const proof::RoutingReport& routing) {
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
  write_part(json, "prefill", c.prefill);
  write_part(json, "steps", c.steps);
  write_part(json, "greedy", c.greedy);
  write_routing(json, c.routing);
  if (c.lookahead) write_lookahead(json, *c.lookahead);
  write_layers(json, c.layers);
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

void write_lines(JsonWriter& json, const char* name, const std::vector<std::string>& lines) {
  json.key(name).begin_array();
  for (const std::string& line : lines) json.value(line);
  json.end_array();
}

void write_tolerance(JsonWriter& json, const proof::ParityReport& report, const char* source) {
  const proof::ParityBounds& bounds = report.bounds;
  json.key("tolerance").begin_object();
  write_optional(json, "logits_max_abs", bounds.max_abs);
  write_optional(json, "layers_scaled", bounds.max_abs);
  write_optional(json, "logits_floor_db", report.logits_floor_db);
  json.member("precision", rounding_name(bounds)).member("source", source);
  json.end_object();
}

// The members of one report, without its cases.
void write_summary(JsonWriter& json, const proof::ParityReport& report,
                   const char* tolerance_source) {
  json.key("metrics").begin_object();
  write_metrics(json, report.metrics);
  json.member("greedy_match", report.greedy_match).member("greedy_total", report.greedy_total);
  json.end_object();
  write_routing(json, report.routing);
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
  write_tolerance(json, report, tolerance_source);
}

void write_report(JsonWriter& json, const proof::ParityReport& report,
                  const char* tolerance_source) {
  write_summary(json, report, tolerance_source);
  json.key("cases").begin_array();
  for (const proof::CaseReport& c : report.cases) write_case(json, c);
  json.end_array();
}

void write_named(JsonWriter& json, const char* name, const proof::ParityReport& report) {
  json.key(name).begin_object();
  json.member("parity", report.parity);
  write_report(json, report, "verifier");
  json.end_object();
}

void write_proof(JsonWriter& json, const pipeline::CheckpointProof& proof) {
  json.key("tensors").begin_object();
  json.member("compared", proof.tensors.tensors).member("bytes", proof.tensors.bytes);
  write_lines(json, "different", proof.tensors.different);
  json.end_object();
  json.key("programs").begin_object();
  json.member("compared", proof.programs.programs);
  write_lines(json, "different", proof.programs.different);
  json.end_object();
  if (proof.encodings) {
    json.key("encodings").begin_object();
    write_lines(json, "different", *proof.encodings);
    json.end_object();
  }
  if (!proof.problem.empty()) json.member("problem", proof.problem);
  if (proof.f32_path) write_named(json, "f32_path", *proof.f32_path);
}

void write_modes(JsonWriter& json, const pipeline::Verification& v) {
  json.key("modes").begin_array();
  for (const proof::ModeProof& mode : v.modes) {
    json.begin_object().member("mode", name_of(mode.mode));
    if (mode.report) {
      json.member("against", name_of(runner::DecodeMode::kKv)).member("parity", mode.parity());
      if (mode.mode == runner::DecodeMode::kLookahead) write_lookahead(json, mode.lookahead);
      write_summary(json, *mode.report, v.tolerance_given ? "argument" : "verifier");
    } else {
      json.member("absent", mode.absent);
    }
    json.end_object();
  }
  json.end_array();
}

// -- text

std::string number(double value) {
  return value == proof::kBeyondAnyBound ? "not finite" : fmt::format("{:.2e}", value);
}

std::string case_lines(const proof::CaseReport& c) {
  const std::string name = c.prompt.empty() ? "prompt" : quoted(c.prompt);
  if (!c.skipped.empty()) return fmt::format("{}: skipped, {}\n", name, c.skipped);
  std::string text =
      fmt::format("{}: {}, {} tokens: max_abs {} in one prefill", name,
                  c.parity ? "parity" : "NO PARITY", c.tokens, number(c.prefill.values.max_abs));
  if (c.steps.rows > 0) text += fmt::format(", {} token by token", number(c.steps.values.max_abs));
  text += fmt::format(", greedy {}/{}\n", c.greedy_match, c.greedy_total);
  if (c.f64) {
    text += fmt::format("  from the f64 logits: ours {}, the reference's {}\n", number(c.f64->ours),
                        number(c.f64->reference));
  }
  if (c.routing.different > 0) {
    text += fmt::format(
        "  routers: {} of {} choices differ; compared along the experts of the reference\n",
        c.routing.different, c.routing.choices);
  }
  if (!c.not_compared.empty()) {
    constexpr size_t kShown = 3;
    text += fmt::format("  {} tensors of the reference have no counterpart in the bundle:",
                        c.not_compared.size());
    for (size_t i = 0; i < std::min(kShown, c.not_compared.size()); ++i) {
      text += " " + quoted(c.not_compared[i]);
    }
    text += c.not_compared.size() > kShown ? " ...\n" : "\n";
  }
  return text;
}

std::string bound_text(const proof::ParityReport& report) {
  if (report.logits_floor_db) return fmt::format("floor {:.1f} dB", *report.logits_floor_db);
  return fmt::format("bound {:g}", report.bounds.max_abs.value_or(0));
}

std::string layer_line(const proof::LayerResult& layer) {
  const std::string floor = layer.floor_db ? fmt::format("  floor {:5.1f} dB  margin {:5.1f} dB",
                                                         *layer.floor_db, *margin_of(layer))
                                           : std::string();
  return fmt::format("  {:26} max_abs {:>10}  SQNR {:6.1f} dB{}{}\n", layer.tensor.name,
                     number(layer.metrics.max_abs), layer.metrics.sqnr_db, floor,
                     layer.within ? "" : "  DIVERGES");
}

std::string report_lines(const proof::ParityReport& report) {
  std::string text;
  for (const proof::CaseReport& c : report.cases) text += case_lines(c);
  const proof::LogitMetrics& m = report.metrics;
  fmt::format_to(std::back_inserter(text),
                 "logits: max_abs {} ({}), rel_rms {}, cosine {:.9f}, SQNR {:.1f} dB, "
                 "KL {}, top-1 {:.2f} %\n",
                 number(m.values.max_abs), bound_text(report), number(m.values.rel_rms),
                 m.values.cosine, m.values.sqnr_db, number(m.kl_mean), 100 * m.top1_agreement);
  for (const proof::LayerResult& layer : report.layers) text += layer_line(layer);
  return text;
}

std::string mode_lines(const proof::ModeProof& mode) {
  if (!mode.report) return fmt::format("mode {}: not there: {}\n", name_of(mode.mode), mode.absent);
  const proof::ParityReport& report = *mode.report;
  const proof::ValueMetrics& logits = report.metrics.values;
  std::string text = fmt::format(
      "mode {} against kv: {}: logits max_abs {} ({}), SQNR {:.1f} dB, greedy {}/{}",
      name_of(mode.mode), mode.parity() ? "parity" : "NO PARITY", number(logits.max_abs),
      bound_text(report), logits.sqnr_db, report.greedy_match, report.greedy_total);
  if (mode.mode == runner::DecodeMode::kLookahead) {
    text += fmt::format(", {} of {} tokens from accepted guesses", mode.lookahead.accepted,
                        mode.lookahead.generated);
  }
  text += "\n";
  for (const proof::LayerResult& layer : report.layers) {
    if (!layer.within) text += layer_line(layer);
  }
  return text;
}

std::string indented(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

// How many of `all` there are without a line.
uint64_t without(uint64_t all, const std::vector<std::string>& lines) {
  return all - std::min<uint64_t>(all, lines.size());
}

std::string proof_lines(const pipeline::CheckpointProof& proof) {
  std::string text = indented(proof.tensors.different);
  text += fmt::format("weights: {} of {} derived again from the checkpoint, bit for bit ({})\n",
                      without(proof.tensors.tensors, proof.tensors.different),
                      proof.tensors.tensors, human_bytes(proof.tensors.bytes));
  text += indented(proof.programs.different);
  text += fmt::format("programs: {} of {} made again from the checkpoint, byte for byte\n",
                      without(proof.programs.programs, proof.programs.different),
                      proof.programs.programs);
  if (proof.encodings) {
    text += indented(*proof.encodings);
    text += fmt::format("encodings: {}\n", proof.encodings->empty()
                                               ? "those that calibration gives"
                                               : "not those that calibration gives");
  }
  if (!proof.f32_path) return text;
  text += "\nthe checkpoint in f32, against the reference:\n" + report_lines(*proof.f32_path);
  return text + "\n";
}

std::string where(const proof::ParityReport& report) {
  const proof::Divergence& divergence = *report.first_divergence;
  if (divergence.layer < 0) return fmt::format("the embedding ({})", divergence.tensor);
  if (divergence.layer >= report.bounds.layers) {
    return fmt::format("the head ({})", divergence.tensor);
  }
  return fmt::format("layer {} ({})", divergence.layer, divergence.tensor);
}

std::string divergence_line(const proof::ParityReport& report) {
  return fmt::format("max_abs {}, SQNR {:.1f} dB ({}), greedy {}/{}, first divergence in {}",
                     number(report.metrics.values.max_abs), report.metrics.values.sqnr_db,
                     bound_text(report), report.greedy_match, report.greedy_total, where(report));
}

}  // namespace

std::string to_json(const pipeline::Verification& v) {
  JsonWriter json;
  json.begin_object();
  json.member("parity", v.parity());
  const Meaning meaning = meaning_of(v);
  write_lines(json, "proves", v.parity() ? meaning.proves : std::vector<std::string>{});
  write_lines(json, "does_not_prove", meaning.leaves_open);
  if (v.proof) write_proof(json, *v.proof);
  if (v.rounding) {
    write_named(json, "in_f32", v.rounding->in_f32);
    write_named(json, "rounding", v.rounding->rounding);
  }
  if (v.outputs() != nullptr)
    write_report(json, *v.outputs(), v.tolerance_given ? "argument" : "verifier");
  if (!v.against.empty()) json.member("against", v.against);
  if (!v.modes.empty()) write_modes(json, v);
  write_pixels(json, v.pixels);
  json.end_object();
  return json.take();
}

std::string to_text(const pipeline::Verification& v) {
  std::string text = pixel_lines(v.pixels);
  if (v.proof) {
    text += proof_lines(*v.proof);
    if (v.outputs() != nullptr) text += "the bundle, against the checkpoint in f32:\n";
  }
  if (v.rounding) {
    text += "with activations in f32, against the reference:\n" + report_lines(v.rounding->in_f32);
    text += "\nas it is, against the same with activations in f32:\n" +
            report_lines(v.rounding->rounding);
    text += "\nas it is, against the reference:\n";
  }
  if (!v.against.empty()) text += fmt::format("against {}:\n", quoted(v.against));
  if (v.outputs() != nullptr) text += report_lines(*v.outputs());
  for (const proof::ModeProof& mode : v.modes) text += mode_lines(mode);
  const Meaning meaning = meaning_of(v);
  text += v.parity() ? "parity\n" : "no parity\n";
  if (v.parity()) {
    for (const std::string& line : meaning.proves) text += "  proved: " + line + "\n";
  }
  for (const std::string& line : meaning.leaves_open) text += "  not proved: " + line + "\n";
  return text;
}

std::vector<std::string> reasons(const pipeline::Verification& v) {
  std::vector<std::string> lines = pixel_reasons(v.pixels);
  if (v.proof) {
    const pipeline::CheckpointProof& proof = *v.proof;
    if (!proof.tensors.ok()) {
      lines.push_back(fmt::format("{} of {} weights are not those of the checkpoint, first {}",
                                  proof.tensors.different.size(), proof.tensors.tensors,
                                  proof.tensors.different.front()));
    }
    if (!proof.programs.ok()) {
      lines.push_back(
          fmt::format("this version of Ferry makes another program of the checkpoint: {}",
                      proof.programs.different.front()));
    }
    if (proof.encodings && !proof.encodings->empty()) {
      lines.push_back(proof.encodings->front());
    }
    if (!proof.problem.empty()) lines.push_back(proof.problem);
    if (proof.f32_path && !proof.f32_path->parity) {
      lines.push_back("the checkpoint in f32 is not what the reference says: " +
                      divergence_line(*proof.f32_path));
    }
  }
  if (v.rounding && !v.rounding->in_f32.parity) {
    lines.push_back("with activations in f32, against the reference: " +
                    divergence_line(v.rounding->in_f32));
  }
  if (v.rounding && !v.rounding->rounding.parity) {
    lines.push_back("against the same with activations in f32: " +
                    divergence_line(v.rounding->rounding));
  }
  if (v.outputs() != nullptr && !v.outputs()->parity) {
    lines.push_back(divergence_line(*v.outputs()));
  }
  for (const proof::ModeProof& mode : v.modes) {
    if (mode.parity()) continue;
    lines.push_back(fmt::format("mode {} is not what mode kv is: {}", name_of(mode.mode),
                                divergence_line(*mode.report)));
  }
  return lines;
}

}  // namespace ferry::cli
