#include "cli/verify_report.h"
#include "cli/verify_comparisons.h"
#include "cli/verify_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/text.h"

namespace ferry::cli {
namespace {

// Returns how many times a difference fits into its bound, such as "6.1x".
std::string margin_text(const proof::ValueMetrics& metrics) {
  const double margin = *proof::noise_margin(metrics);
  return margin >= 1000 ? std::string(">999x") : fmt::format("{:.1f}x", margin);
}

std::string case_lines(const proof::CaseReport& c) {
  const std::string name = c.prompt.empty() ? "prompt" : quoted(c.prompt);
  if (!c.skipped.empty()) return fmt::format("{}: skipped, {}\n", name, c.skipped);
  std::string text = fmt::format(
      "{}: {}, {} tokens: max_abs {}", name, c.parity ? "parity" : "NO PARITY", c.tokens,
      difference_text(c.worst().rows > 0 ? c.prefill.values.max_abs : c.worst().values.max_abs));
  if (c.worst().rows > 0) text += " in one prefill";
  if (c.steps.rows > 0)
    text += fmt::format(", {} token by token", difference_text(c.steps.values.max_abs));
  if (c.greedy_total > 0) text += fmt::format(", greedy {}/{}", c.greedy_match, c.greedy_total);
  text += "\n";
  if (c.f64) {
    text += fmt::format("  from the f64 logits: ours {}, the reference's {}\n",
                        difference_text(c.f64->ours), difference_text(c.f64->reference));
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

std::string layer_line(const proof::LayerResult& layer) {
  std::string bound;
  if (layer.floor_db) {
    bound =
        fmt::format("  floor {:5.1f} dB  margin {:5.1f} dB", *layer.floor_db, *layer.margin_db());
  } else if (const auto most = proof::noise_bound(layer.metrics)) {
    bound = fmt::format("  noise {}  bound {}  margin {}", difference_text(layer.metrics.noise),
                        difference_text(*most), margin_text(layer.metrics));
  }
  return fmt::format("  {:26} max_abs {:>10}  SQNR {:6.1f} dB{}{}\n", layer.tensor.name,
                     difference_text(layer.metrics.max_abs), layer.metrics.sqnr_db, bound,
                     layer.within ? "" : "  DIVERGES");
}

std::string report_lines(const proof::ParityReport& report) {
  std::string text;
  for (const proof::CaseReport& c : report.cases) text += case_lines(c);
  const proof::LogitMetrics& m = report.metrics;
  fmt::format_to(std::back_inserter(text),
                 "{}: max_abs {} ({}), rel_rms {}, cosine {:.9f}, SQNR {:.1f} dB", report.output(),
                 difference_text(m.values.max_abs), bound_text(report),
                 difference_text(m.values.rel_rms), m.values.cosine, m.values.sqnr_db);
  if (report.has_logits()) {
    fmt::format_to(std::back_inserter(text), ", KL mean {} max {}, top-1 {:.2f} %",
                   difference_text(m.kl_mean), difference_text(m.kl_max), 100 * m.top1_agreement);
  }
  text += "\n";
  for (const proof::LayerResult& layer : report.layers) text += layer_line(layer);
  return text;
}

// `more` is text for the end of the line.
std::string mode_comparison(const std::string& title, const proof::ParityReport& report,
                            const std::string& more) {
  const proof::ValueMetrics& logits = report.metrics.values;
  std::string text = fmt::format(
      "{}: {}: logits max_abs {} ({}), SQNR {:.1f} dB, KL mean {}, top-1 {:.2f} %, greedy "
      "{}/{}{}\n",
      title, report.parity ? "parity" : "NO PARITY", difference_text(logits.max_abs),
      bound_text(report), logits.sqnr_db, difference_text(report.metrics.kl_mean),
      100 * report.metrics.top1_agreement, report.greedy_match, report.greedy_total, more);
  for (const proof::LayerResult& layer : report.layers) {
    if (!layer.within) text += layer_line(layer);
  }
  return text;
}

std::string mode_lines(const proof::ModeProof& mode) {
  if (!mode.report) return fmt::format("mode {}: not there: {}\n", name_of(mode.mode), mode.absent);
  std::string guesses;
  if (mode.mode == runner::DecodeMode::kLookahead) {
    guesses = fmt::format(", {} of {} tokens from accepted guesses", mode.lookahead.accepted,
                          mode.lookahead.generated);
  }
  const std::string title = fmt::format("mode {} against kv", name_of(mode.mode));
  std::string text = mode_comparison(title, *mode.report, guesses);
  if (mode.in_f32) {
    text += mode_comparison(title + ", both with activations in f32", *mode.in_f32, {});
  }
  return text;
}

std::string indented(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

// Returns the number of `all` items that have no line in `lines`.
uint64_t without(uint64_t all, const std::vector<std::string>& lines) {
  return all - std::min<uint64_t>(all, lines.size());
}

std::string codes_lines(const proof::CodedProof& codes) {
  if (!codes.absent.empty()) {
    return fmt::format("the bundle's own weights in f32: not compared: {}\n", codes.absent);
  }
  return "with activations in f32, against the model with the bundle's own weights in f32:\n" +
         report_lines(codes.exact) + "\nas it is, against the same:\n" +
         report_lines(codes.activations) + "\n";
}

// Returns a line about the difference between the reference and the model in f64.
std::string f64_line(const proof::ParityReport& f64) {
  const proof::ValueMetrics& values = f64.metrics.values;
  if (!values.noise_ratio) return {};
  return fmt::format(
      "the checkpoint in f64, against the reference: {} max_abs {}, rel_rms {}: {:.2f} times the "
      "noise of f32\n\n",
      f64.output(), difference_text(values.max_abs), difference_text(values.rel_rms),
      *values.noise_ratio);
}

// Returns lines about the weights of a program of another tool.
std::string matched_lines(const proof::CheckpointProof& proof) {
  if (!proof.matched) return "weights and programs: those of another tool\n";
  const proof::MatchedWeights& matched = *proof.matched;
  return indented(matched.different()) +
         fmt::format(
             "weights: {} of {} matrices of the model are in the program, {} in codes ({} "
             "values compared), and {} of {} vectors\n",
             matched.found(), matched.weights(), matched.coded(), matched.values(),
             matched.found_vectors(), matched.vectors());
}

std::string content_lines(const proof::CheckpointProof& proof) {
  if (!proof.made_again) return matched_lines(proof);
  std::string text = indented(proof.tensors.different);
  text += fmt::format("weights: {} of {} derived again from the checkpoint, bit for bit ({})\n",
                      without(proof.tensors.tensors, proof.tensors.different),
                      proof.tensors.tensors, human_bytes(proof.tensors.bytes));
  text += quantization_lines(proof.tensors.errors);
  text += indented(proof.programs.different);
  text += fmt::format("programs: {} of {} made again from the checkpoint, byte for byte\n",
                      without(proof.programs.programs, proof.programs.different),
                      proof.programs.programs);
  return text;
}

std::string proof_lines(const proof::CheckpointProof& proof) {
  std::string text = content_lines(proof);
  if (proof.encodings) {
    text += indented(*proof.encodings);
    text += fmt::format("encodings: {}\n", proof.encodings->empty()
                                               ? "those that calibration gives"
                                               : "not those that calibration gives");
  }
  if (proof.f32_path) {
    text +=
        "\nthe checkpoint in f32, against the reference:\n" + report_lines(*proof.f32_path) + "\n";
  }
  if (proof.f64_path) text += f64_line(*proof.f64_path);
  return proof.codes ? text + codes_lines(*proof.codes) : text;
}

std::string divergence_line(const proof::ParityReport& report) {
  return fmt::format("max_abs {}, SQNR {:.1f} dB ({}){}, first divergence in {}",
                     difference_text(report.metrics.values.max_abs), report.metrics.values.sqnr_db,
                     bound_text(report), greedy_text(report), place_of(report));
}

}  // namespace

std::string difference_text(double value) {
  return value == proof::kBeyondAnyBound ? "not finite" : fmt::format("{:.2e}", value);
}

std::string to_text(const proof::Verification& v) {
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
  text += std::string(verdict_name(v.verdict())) + "\n";
  if (v.parity()) {
    for (const std::string& line : meaning.proves) text += "  proved: " + line + "\n";
  }
  for (const std::string& line : meaning.leaves_open) text += "  not proved: " + line + "\n";
  return text;
}

std::vector<std::string> reasons(const proof::Verification& v) {
  std::vector<std::string> lines = pixel_reasons(v.pixels);
  if (v.proof && !v.proof->decided()) {
    lines.push_back(fmt::format(
        "{}, and outputs that lose so much tell nothing (logits SQNR {:.1f} dB, {:g} dB would do)",
        v.proof->matched->undecided(), v.outputs()->metrics.values.sqnr_db, proof::kTellingDb));
  }
  if (v.rounding && v.verdict() == proof::Verdict::kNotProved) {
    lines.push_back(fmt::format(
        "codes of {} make errors so large that a reference cannot tell a right bundle from a wrong "
        "one (logits SQNR {:.1f} dB, {:g} dB would do): add --checkpoint",
        rounding_name(v.rounding->outputs.bounds), v.rounding->in_f32.metrics.values.sqnr_db,
        proof::kTellingDb));
  }
  if (v.proof) {
    const proof::CheckpointProof& proof = *v.proof;
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
    if (proof.matched && !proof.matched->different().empty()) {
      lines.push_back(fmt::format("the weights are not those of the checkpoint: {}",
                                  proof.matched->different().front()));
    }
    if (proof.encodings && !proof.encodings->empty()) {
      lines.push_back(proof.encodings->front());
    }
    if (!proof.problem.empty()) lines.push_back(proof.problem);
    if (proof.f32_path && !proof.f32_path->parity) {
      lines.push_back("the checkpoint in f32 is not what the reference says: " +
                      divergence_line(*proof.f32_path));
    }
    if (proof.codes && proof.codes->absent.empty() && !proof.codes->exact.parity) {
      lines.push_back("with activations in f32, against the model with its own weights: " +
                      divergence_line(proof.codes->exact));
    }
    if (proof.codes && proof.codes->absent.empty() && !proof.codes->activations.parity) {
      lines.push_back("as it is, against the model with its own weights: " +
                      divergence_line(proof.codes->activations));
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
    if (mode.report && !mode.report->parity) {
      lines.push_back(fmt::format("mode {} is not what mode kv is: {}", name_of(mode.mode),
                                  divergence_line(*mode.report)));
    }
    if (mode.in_f32 && !mode.in_f32->parity) {
      lines.push_back(
          fmt::format("mode {} is not what mode kv is, both with activations in f32: {}",
                      name_of(mode.mode), divergence_line(*mode.in_f32)));
    }
  }
  return lines;
}

}  // namespace ferry::cli
