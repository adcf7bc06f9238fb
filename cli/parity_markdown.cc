// Writes the report of a verification as Markdown. Names and reasons come from untrusted files, so
// they are put in code spans, where nothing is markup, a link or a mention.

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/parity_document.h"
#include "cli/verify_comparisons.h"
#include "cli/verify_report.h"
#include "cli/verify_sections.h"
#include "core/text.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

constexpr size_t kShownLines = 20;

// Returns a line, whose names are escaped already, as a code span.
std::string code(std::string_view line) {
  std::string span = "`";
  for (const char c : line) {
    if (c == '|') span += '\\';
    span += c == '`' ? '\'' : c;
  }
  return span + "`";
}
std::string name_as_code(std::string_view untrusted) { return code(printable(untrusted)); }

std::string comparison_row(const NamedComparison& comparison) {
  if (comparison.report == nullptr) {
    return fmt::format("| {} | not made: {} | | | | | | |\n", comparison.title(),
                       code(comparison.absent));
  }
  const proof::ParityReport& report = *comparison.report;
  const proof::LogitMetrics& m = report.metrics;
  std::string row =
      fmt::format("| {} | {} | {} | {:.1f} dB | {} |", comparison.title(),
                  report.parity ? "parity" : "**no parity**", difference_text(m.values.max_abs),
                  m.values.sqnr_db, bound_text(report));
  if (!report.has_logits()) return row + " | | |\n";
  return row + fmt::format(" {} | {:.2f} % | {}/{} |\n", difference_text(m.kl_mean),
                           100 * m.top1_agreement, report.greedy_match, report.greedy_total);
}

std::string comparison_table(const std::vector<NamedComparison>& comparisons) {
  std::string output = "logits";
  for (const NamedComparison& comparison : comparisons) {
    if (comparison.report != nullptr) output = comparison.report->output();
  }
  std::string text = fmt::format(
      "| comparison | | {} max_abs | SQNR | bound | KL mean | top-1 | greedy |\n"
      "|---|---|---|---|---|---|---|---|\n",
      output);
  for (const NamedComparison& comparison : comparisons) text += comparison_row(comparison);
  return text + "\n";
}

// Returns lines for the tensors that exceed their bounds, in model order.
std::string divergences(const NamedComparison& comparison) {
  if (comparison.report == nullptr || comparison.report->parity) return {};
  const proof::ParityReport& report = *comparison.report;
  std::string text =
      fmt::format("**{}**: first divergence in {}\n\n", comparison.title(), code(place_of(report)));
  std::vector<const proof::LayerResult*> beyond;
  for (const proof::LayerResult& layer : report.layers) {
    if (!layer.within) beyond.push_back(&layer);
  }
  if (beyond.empty()) return text;
  text += "| tensor | layer | max_abs | SQNR | floor |\n|---|---|---|---|---|\n";
  for (size_t i = 0; i < std::min(kShownLines, beyond.size()); ++i) {
    const proof::LayerResult& layer = *beyond[i];
    text += fmt::format("| {} | {} | {} | {:.1f} dB | {} |\n", name_as_code(layer.tensor.name),
                        layer.tensor.layer, difference_text(layer.metrics.max_abs),
                        layer.metrics.sqnr_db,
                        layer.floor_db ? fmt::format("{:.1f} dB", *layer.floor_db) : std::string());
  }
  if (beyond.size() > kShownLines)
    text += fmt::format("\n... and {} more\n", beyond.size() - kShownLines);
  return text + "\n";
}

std::string list(std::string_view title, const std::vector<std::string>& lines, bool untrusted) {
  if (lines.empty()) return {};
  std::string text = fmt::format("{}:\n\n", title);
  for (size_t i = 0; i < std::min(kShownLines, lines.size()); ++i) {
    text += fmt::format("- {}\n", untrusted ? code(lines[i]) : lines[i]);
  }
  if (lines.size() > kShownLines)
    text += fmt::format("- ... and {} more\n", lines.size() - kShownLines);
  return text + "\n";
}

std::string checkpoint_lines(const proof::CheckpointProof& proof) {
  if (!proof.made_again) {
    if (!proof.matched) return "Weights and programs are those of another tool.\n\n";
    return fmt::format(
               "{} of {} matrices of the model are in the program, {} in codes, and {} of {} "
               "vectors.\n\n",
               proof.matched->found(), proof.matched->weights(), proof.matched->coded(),
               proof.matched->found_vectors(), proof.matched->vectors()) +
           list("Weights that differ", proof.matched->different(), /*untrusted=*/true);
  }
  const auto equal = [](uint64_t all, const std::vector<std::string>& different) {
    return all - std::min<uint64_t>(all, different.size());
  };
  std::string text = fmt::format(
      "{} of {} weights derived again from the checkpoint, bit for bit ({}); {} of {} programs "
      "made "
      "again, byte for byte.\n\n",
      equal(proof.tensors.tensors, proof.tensors.different), proof.tensors.tensors,
      human_bytes(proof.tensors.bytes), equal(proof.programs.programs, proof.programs.different),
      proof.programs.programs);
  text += list("Weights that differ", proof.tensors.different, /*untrusted=*/true);
  return text + list("Programs that differ", proof.programs.different, /*untrusted=*/true);
}

std::string verification_lines(const proof::Verification& v) {
  const std::vector<NamedComparison> comparisons = comparisons_of(v);
  const Meaning meaning = meaning_of(v);
  std::string text = code(verdict_line(v)) + "\n\n";
  if (!v.parity()) text += list("Why", reasons(v), /*untrusted=*/true);
  text += comparison_table(comparisons);
  for (const NamedComparison& comparison : comparisons) text += divergences(comparison);
  if (v.proof) text += checkpoint_lines(*v.proof);
  // With `against`, the sentences contain an untrusted path.
  if (v.parity()) text += list("Proved", meaning.proves, /*untrusted=*/!v.against.empty());
  return text + list("Not proved", meaning.leaves_open, /*untrusted=*/!v.against.empty());
}

std::string identity_lines(const ReportInput& input) {
  const packer::Manifest& manifest = input.bundle.manifest();
  std::string text = fmt::format(
      "| | |\n|---|---|\n| bundle | {} |\n| model | {}, {} layers, {} |\n| manifest | {} |\n",
      name_as_code(bundle_name(input.bundle)), name_as_code(manifest.model_type),
      manifest.num_layers, name_as_code(manifest.weight_dtype), code(manifest_digest(manifest)));
  if (input.verification != nullptr && input.verification->reference_file) {
    const proof::ReferenceFile& file = *input.verification->reference_file;
    text += fmt::format("| reference | {} {} |\n", name_as_code(file.name), code(file.sha256));
  }
  if (!input.options.checkpoint.empty()) {
    text += fmt::format("| checkpoint | {} |\n", name_as_code(base_name(input.options.checkpoint)));
  }
  return text + fmt::format("| ferry | {} |\n", code(version()));
}

}  // namespace

std::string parity_markdown(const ReportInput& input) {
  const bool is_verdict = input.verification != nullptr;
  const char* title = !is_verdict                    ? "Perplexity"
                      : input.verification->parity() ? "Parity"
                                                     : "No parity";
  std::string text = fmt::format("<!-- {} 1 -->\n## {}: {}\n\n", kReportMark, title,
                                 name_as_code(bundle_name(input.bundle)));
  if (is_verdict) text += verification_lines(*input.verification);
  if (input.perplexity != nullptr) text += "```\n" + to_text(*input.perplexity) + "```\n\n";
  return text + identity_lines(input);
}

}  // namespace ferry::cli
