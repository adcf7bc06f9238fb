#include "cli/verify_comparisons.h"

#include <fmt/format.h>

#include <utility>

#include "cli/decode_mode.h"
#include "cli/verify_meaning.h"
#include "cli/verify_report.h"

namespace ferry::cli {
namespace {

constexpr const char* kBundle = "the bundle";
constexpr const char* kWidened = "the bundle with activations in f32";
constexpr const char* kPath = "the checkpoint in f32";
constexpr const char* kReference = "the reference";
constexpr const char* kOwnWeights = "the model with the bundle's own weights in f32";

void add_proof(const pipeline::CheckpointProof& proof, std::vector<NamedComparison>& list) {
  if (proof.f32_path) list.push_back({"f32_path", kPath, kReference, &*proof.f32_path});
  if (proof.codes) {
    const pipeline::CodedProof& codes = *proof.codes;
    const bool made = codes.absent.empty();
    list.push_back(
        {"own_weights.in_f32", kWidened, kOwnWeights, made ? &codes.exact : nullptr, codes.absent});
    list.push_back({"own_weights.activations", kBundle, kOwnWeights,
                    made ? &codes.activations : nullptr, codes.absent});
  }
  list.push_back({"outputs", kBundle, kPath, proof.outputs ? &*proof.outputs : nullptr,
                  proof.outputs ? std::string() : proof.problem});
}

}  // namespace

std::vector<NamedComparison> comparisons_of(const pipeline::Verification& v) {
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
  }
  return list;
}

StatedBounds bounds_of(const NamedComparison& comparison, const pipeline::Verification& v) {
  const proof::ParityReport& report = *comparison.report;
  StatedBounds bounds = {rounding_name(report.bounds), "verifier", report.output_limit(),
                         report.logits_floor_db};
  if (report.measured_floors) {
    bounds.source = "measured";
    bounds.max_abs.reset();
    return bounds;
  }
  // --tolerance is of the bundle as it is.
  const bool takes_argument = comparison.id == "outputs" ||
                              comparison.id == "own_weights.activations" ||
                              comparison.id.starts_with("mode.");
  if (v.tolerance_given && takes_argument) bounds.source = "argument";
  return bounds;
}

std::string bound_text(const proof::ParityReport& report) {
  if (report.logits_floor_db) return fmt::format("floor {:.1f} dB", *report.logits_floor_db);
  return fmt::format("bound {:g}", report.output_limit().value_or(0));
}

std::string greedy_text(const proof::ParityReport& report) {
  if (!report.has_logits()) return {};
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

std::string verdict_line(const pipeline::Verification& v) {
  if (!v.parity()) {
    const std::vector<std::string> why = reasons(v);
    return "no parity: " + (why.empty() ? std::string("see the comparisons") : why.front());
  }
  const proof::ParityReport& outputs = *v.outputs();
  const proof::ValueMetrics& values = outputs.metrics.values;
  return fmt::format("parity: {} max_abs {:.2e}, SQNR {:.1f} dB ({}){}", outputs.output(),
                     values.max_abs, values.sqnr_db, bound_text(outputs), greedy_text(outputs));
}

}  // namespace ferry::cli
