#include "cli/verify_comparisons.h"

#include <fmt/format.h>

#include <utility>

#include "cli/option_values.h"
#include "cli/verify_report.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

constexpr const char* kBundle = "the bundle";
constexpr const char* kWidened = "the bundle with activations in f32";
constexpr const char* kPath = "the checkpoint in f32";
constexpr const char* kReference = "the reference";
constexpr const char* kOwnWeights = "the model with the bundle's own weights in f32";

void add_proof(const proof::CheckpointProof& proof, std::vector<NamedComparison>& list) {
  if (proof.f32_path) list.push_back({"f32_path", kPath, kReference, &*proof.f32_path});
  if (proof.f64_path) {
    list.push_back({"f64_path", "the checkpoint in f64", kReference, &*proof.f64_path});
  }
  if (proof.codes) {
    const proof::CodedProof& codes = *proof.codes;
    const bool made = codes.absent.empty();
    list.push_back(
        {"own_weights.in_f32", kWidened, kOwnWeights, made ? &codes.exact : nullptr, codes.absent});
    list.push_back({"own_weights.activations", kBundle, kOwnWeights,
                    made ? &codes.activations : nullptr, codes.absent});
  }
  list.push_back({"outputs", kBundle, kPath, proof.outputs ? &*proof.outputs : nullptr,
                  proof.outputs ? std::string() : proof.problem});
}

// Returns the cause of errors, such as "bf16 rounding" or "8da4w-g32 quantisation".
std::string loss_name(const proof::ParityBounds& bounds) {
  return rounding_name(bounds) + (bounds.coded_db ? " quantisation" : " rounding");
}

std::string within(const proof::ParityBounds& bounds) {
  if (bounds.given) return " within --tolerance";
  if (!bounds.has_floors()) return " within the noise of f32";
  if (bounds.noise) return " within the noise of its own rounding";
  return fmt::format(" within the error of {}", loss_name(bounds));
}

void add_codes(const proof::CodedProof& codes, Meaning& m) {
  if (!codes.absent.empty()) {
    m.leaves_open.push_back(
        "mistakes of the program that change outputs by less than quantisation does: " +
        codes.absent);
    return;
  }
  const proof::ParityBounds& exact = codes.exact.bounds;
  if (exact.has_floors() && !exact.given) {
    // Caches of 8 bits or half precision, which no execution leaves out.
    const std::string loss = rounding_name(exact);
    m.proves.push_back(
        "with activations in f32 the bundle computes what the model computes with the same "
        "weights, within the error of " +
        loss + " caches and ports");
    m.leaves_open.push_back("mistakes of the program that change outputs by less than " + loss +
                            " caches and ports do");
  } else {
    m.proves.push_back(
        "with activations in f32 the bundle computes what the model computes with the same codes "
        "and scales: no error of it is taken for quantisation");
  }
  if (codes.activations.bounds.coded_db) {
    m.proves.push_back("as it is, it differs from that by what 8-bit activations lose");
  }
}

// The meaning of a proof of programs of another tool.
void add_outputs(const proof::CheckpointProof& proof, Meaning& m) {
  const proof::MatchedWeights* matched = proof.matched ? &*proof.matched : nullptr;
  const bool has_weights = matched != nullptr && matched->undecided().empty();
  if (has_weights && matched->found() > 0) {
    m.proves.push_back(fmt::format(
        "{} of {} matrices of the model are in the program, {}", matched->found(),
        matched->weights(),
        matched->coded() > 0 ? "every value within half a step of its code" : "bit for bit"));
  }
  const bool held = proof.codes && proof.codes->absent.empty();
  if (!held) {
    m.proves.push_back("the program computes what the checkpoint's model computes" +
                       within(proof.outputs->bounds) + ", for these prompts");
  }
  if (!has_weights || matched->found() < matched->weights()) {
    m.leaves_open.push_back("weights that these prompts do not use");
  }
  if (held) return add_codes(*proof.codes, m);
  if (!proof.outputs->bounds.has_floors()) return;
  m.leaves_open.push_back("mistakes that change outputs by less than " +
                          loss_name(proof.outputs->bounds));
}

Meaning outputs_meaning(const proof::Verification& v) {
  Meaning m;
  if (v.proof && !v.proof->made_again) {
    if (v.proof->outputs) add_outputs(*v.proof, m);
    if (v.has_reference) {
      m.proves.push_back("the checkpoint's model in f32 computes what the reference says");
    } else {
      m.leaves_open.push_back(
          "that Ferry computes what the original model computes: add --reference");
    }
    return m;
  }
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
    if (v.proof->codes) add_codes(*v.proof->codes, m);
    return m;
  }
  if (!v.against.empty()) {
    m.proves.push_back(fmt::format("the bundle computes what {} computes{}, for these prompts",
                                   quoted(v.against), within(v.direct->bounds)));
    m.leaves_open.push_back(fmt::format(
        "that {} is right: verify it with --reference or --checkpoint", quoted(v.against)));
    m.leaves_open.push_back("weights that these prompts do not use: use --checkpoint");
    return m;
  }
  m.leaves_open.push_back("weights that the prompts of the reference do not use: add --checkpoint");
  if (v.direct) {
    m.proves.push_back(v.direct->bounds.given
                           ? "the bundle is within --tolerance of the reference, for its prompts"
                           : "the bundle computes what the reference says, for its prompts");
    return m;
  }
  const std::string loss = loss_name(v.rounding->outputs.bounds);
  if (v.rounding->exact_weights) {
    m.proves.push_back(
        "the bundle's program with activations in f32 computes what the reference says, for its "
        "prompts");
    m.leaves_open.push_back(fmt::format("what {} of activations does: it is measured", loss));
    return m;
  }
  m.proves.push_back(
      fmt::format("the bundle is within the error of {} of the reference, for its prompts", loss));
  m.leaves_open.push_back(fmt::format(
      "mistakes that change outputs by less than {} of weights: add --checkpoint", loss));
  return m;
}

}  // namespace

std::vector<NamedComparison> comparisons_of(const proof::Verification& v) {
  std::vector<NamedComparison> list;
  if (v.proof) add_proof(*v.proof, list);
  if (v.rounding) {
    list.push_back({"in_f32", kWidened, kReference, &v.rounding->in_f32});
    list.push_back({"rounding", kBundle, kWidened, &v.rounding->rounding});
    list.push_back({"outputs", kBundle, kReference, &v.rounding->outputs});
  }
  if (v.direct) {
    list.push_back(
        {"outputs", kBundle, v.against.empty() ? kReference : "the other bundle", &*v.direct});
  }
  for (const proof::ModeProof& mode : v.modes) {
    const std::string name(name_of(mode.mode));
    list.push_back({"mode." + name, "mode " + name, "mode kv",
                    mode.report ? &*mode.report : nullptr, mode.absent});
    if (mode.in_f32) {
      list.push_back({"mode." + name + ".in_f32", "mode " + name + " with activations in f32",
                      "mode kv with activations in f32", &*mode.in_f32});
    }
  }
  return list;
}

StatedBounds bounds_of(const NamedComparison& comparison) {
  const proof::ParityReport& report = *comparison.report;
  StatedBounds bounds = {rounding_name(report.bounds), "verifier", report.output_limit(),
                         report.logits_floor_db};
  if (report.measured_floors) {
    bounds.source = "measured";
    bounds.max_abs.reset();
    return bounds;
  }
  bounds.source = bound_source(report);
  return bounds;
}

std::string bound_text(const proof::ParityReport& report) {
  if (report.logits_floor_db) return fmt::format("floor {:.1f} dB", *report.logits_floor_db);
  if (report.bounds.measured) return "measured";
  if (const auto bound = proof::noise_bound(report.metrics.values)) {
    return fmt::format("noise {:.2e}, bound {:.2e}", report.metrics.values.noise, *bound);
  }
  return fmt::format("bound {:g}", report.output_limit().value_or(0));
}

std::string_view bound_source(const proof::ParityReport& report) {
  if (report.measured_floors) return "measured";
  if (report.bounds.given) return "argument";
  if (report.bounds.measured) return "none";
  return report.metrics.values.noise_ratio ? "noise" : "verifier";
}

std::string greedy_text(const proof::ParityReport& report) {
  if (report.greedy_total == 0) return {};
  return fmt::format(", greedy {}/{}", report.greedy_match, report.greedy_total);
}

std::string place_of(const proof::ParityReport& report) {
  const proof::Divergence& divergence = *report.first_divergence;
  if (divergence.layer < 0) return fmt::format("the embedding ({})", divergence.tensor);
  if (divergence.layer >= report.bounds.layers) {
    return fmt::format("{} ({})", report.has_logits() ? "the head" : "the output",
                       divergence.tensor);
  }
  return fmt::format("layer {} ({})", divergence.layer, divergence.tensor);
}

std::string_view verdict_name(proof::Verdict verdict) {
  switch (verdict) {
    case proof::Verdict::kProved:
      return "parity";
    case proof::Verdict::kNotProved:
      return "not proved";
    default:
      return "no parity";
  }
}

std::string verdict_line(const proof::Verification& v) {
  if (v.verdict() != proof::Verdict::kProved) {
    const std::vector<std::string> why = reasons(v);
    return std::string(verdict_name(v.verdict())) + ": " +
           (why.empty() ? std::string("see the comparisons") : why.front());
  }
  const proof::ParityReport& outputs = *v.outputs();
  const proof::ValueMetrics& values = outputs.metrics.values;
  return fmt::format("parity: {} max_abs {:.2e}, SQNR {:.1f} dB ({}){}", outputs.output(),
                     values.max_abs, values.sqnr_db, bound_text(outputs), greedy_text(outputs));
}

std::string rounding_name(const proof::ParityBounds& bounds) {
  if (bounds.coded_db) return bounds.coding;
  return bounds.rounding ? std::string(dtype_name(*bounds.rounding)) : "f32";
}

Meaning meaning_of(const proof::Verification& v) {
  Meaning m = outputs_meaning(v);
  for (const proof::ModeProof& mode : v.modes) {
    if (!mode.report) continue;
    const std::string how =
        mode.in_f32 ? " within what rounding activations loses, and with activations in f32" +
                          within(mode.in_f32->bounds)
                    : within(mode.report->bounds);
    m.proves.push_back(fmt::format("mode {} computes what mode kv computes{}, for these prompts",
                                   name_of(mode.mode), how));
  }
  if (v.window_end) {
    m.leaves_open.push_back(fmt::format(
        "outputs of sequences of more than {} tokens, where the window of the attention sink is "
        "full and the model attends to other tokens",
        *v.window_end));
  }
  return m;
}

}  // namespace ferry::cli
