#include "card/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/text.h"

namespace ferry::card {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxProofBytes = uint64_t{64} << 20;
constexpr std::string_view kReportMark = "ferry_parity_report";

ProvedFigure figure_of(const proof::AttestedComparison& c) {
  return {.id = c.id,
          .ours = c.ours,
          .expected = c.expected,
          .output = c.output,
          .precision = c.precision,
          .source = c.source,
          .max_abs_bound = c.max_abs_bound,
          .floor = c.floor,
          .max_abs = c.max_abs,
          .sqnr_db = c.sqnr_db,
          .kl_mean = c.kl_mean,
          .top1_agreement = c.top1_agreement,
          .greedy_match = c.greedy_match,
          .greedy_total = c.greedy_total};
}

// Returns the signed payload, and who signed it if somebody is trusted.
Result<std::string> payload_of(const std::string& text, const std::string& name,
                               const std::optional<signing::Trust>& trust, ProofFigures& out) {
  if (!trust) return signing::unverified_payload(text, name);
  signing::Verdict verdict = FERRY_TRY(signing::verify_envelope(text, name, *trust));
  if (verdict.rejection) return bad_input(verdict.rejection->message);
  out.signer = std::move(verdict.signer);
  return std::move(verdict.payload);
}

bool same_file(const proof::AttestedFile& a, const proof::AttestedFile& b) {
  return a.name == b.name && a.sha256 == b.sha256;
}

Status read_attested(const std::string& name, const ProvedBundle& bundle,
                     const std::string& payload, ProofFigures& out) {
  const proof::ParityAttestation a = FERRY_TRY(proof::read_attestation(payload, name));
  if (!std::ranges::equal(a.files, bundle.digest.files, same_file)) {
    return bad_input(fmt::format("{}: is about other files than those of this bundle", name));
  }
  out.attested = true;
  out.claim = proof::claim_of(a);
  out.ferry = a.ferry;
  std::ranges::transform(a.comparisons, std::back_inserter(out.figures), figure_of);
  out.proves = a.proves;
  out.does_not_prove = a.does_not_prove;
  return {};
}

// Reads members of a report. A member of another type than expected counts as absent, because
// figures of a report are for people.
std::string text_in(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_string()) return {};
  return found->get<std::string>();
}
std::optional<double> number_in(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}
int64_t count_in(const json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number_integer()) return 0;
  return found->get<int64_t>();
}
json member_of(const json& object, const char* name) {
  return object.is_object() ? object.value(name, json()) : json();
}
std::vector<std::string> lines_in(const json& object, const char* name) {
  std::vector<std::string> lines;
  const json list = member_of(object, name);
  for (const json& line : list) {
    if (line.is_string()) lines.push_back(line.get<std::string>());
  }
  return lines;
}

ProvedFigure figure_of(const json& comparison) {
  const json bounds = member_of(comparison, "bounds"), metrics = member_of(comparison, "metrics");
  return {.id = text_in(comparison, "id"),
          .ours = text_in(comparison, "ours"),
          .expected = text_in(comparison, "expected"),
          .output = text_in(comparison, "output"),
          .precision = text_in(bounds, "precision"),
          .source = text_in(bounds, "source"),
          .max_abs_bound = number_in(bounds, "logits_max_abs"),
          .floor = number_in(bounds, "logits_floor_db"),
          .max_abs = number_in(metrics, "max_abs"),
          .sqnr_db = number_in(metrics, "sqnr_db"),
          .kl_mean = number_in(metrics, "kl_mean"),
          .top1_agreement = number_in(metrics, "top1_agreement"),
          .greedy_match = count_in(metrics, "greedy_match"),
          .greedy_total = count_in(metrics, "greedy_total")};
}

Status read_report(const std::string& name, const ProvedBundle& bundle, const json& report,
                   ProofFigures& out) {
  if (text_in(member_of(report, "bundle"), "manifest_sha256") != bundle.manifest_sha256) {
    return bad_input(fmt::format("{}: is about another bundle: its manifest_sha256 differs", name));
  }
  const auto parity = report.find("parity");
  if (parity == report.end() || !parity->is_boolean() || !parity->get<bool>()) {
    return bad_input(fmt::format("{}: is a report without parity", name));
  }
  out.claim = text_in(report, "verdict");
  out.ferry = text_in(report, "ferry");
  const json comparisons = member_of(report, "comparisons");
  for (const json& comparison : comparisons) {
    if (!member_of(comparison, "metrics").is_object()) continue;  // it was not made
    out.figures.push_back(figure_of(comparison));
  }
  out.proves = lines_in(report, "proves");
  out.does_not_prove = lines_in(report, "does_not_prove");
  return {};
}

}  // namespace

Result<ProofFigures> read_proof(const std::string& path, const ProvedBundle& bundle,
                                const std::optional<signing::Trust>& trust) {
  const std::string name = printable(path);
  ProofFigures out;
  out.text = FERRY_TRY(read_text_file(path, kMaxProofBytes));
  out.name = base_name(path);
  out.sha256 = to_hex(sha256(std::as_bytes(std::span(out.text))));
  const json document = FERRY_TRY(parse_json(out.text, name));
  if (document.is_object() && document.contains(kReportMark)) {
    if (trust) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{}: a report is not signed: no key can verify it", name));
    }
    FERRY_RETURN_IF_ERROR(read_report(name, bundle, document, out));
    return out;
  }
  const std::string payload = FERRY_TRY(payload_of(out.text, name, trust, out));
  FERRY_RETURN_IF_ERROR(read_attested(name, bundle, payload, out));
  return out;
}

}  // namespace ferry::card
