#include "cli/attest.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "cli/option_values.h"
#include "cli/parity_document.h"
#include "cli/report_file.h"
#include "cli/verify_comparisons.h"
#include "core/atomic_file.h"
#include "core/text.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

using proof::ParityAttestation;

// Lists the options that decide what was compared, and with which bounds.
std::vector<std::pair<std::string, std::string>> options_of(
    const proof::BundleProofOptions& options) {
  std::vector<std::pair<std::string, std::string>> list;
  if (options.tolerance) list.emplace_back("tolerance", fmt::format("{}", *options.tolerance));
  if (options.mode) list.emplace_back("mode", name_of(*options.mode));
  const std::pair<const char*, const std::string&> files[] = {
      {"config", options.config},
      {"lora", options.lora},
      {"mmproj", options.mmproj},
      {"calibrate", options.calibrate},
      {"calibrate-prefill", options.calibrate_prefill},
      {"calibrate-weights", options.calibrate_weights}};
  for (const auto& [name, path] : files) {
    if (!path.empty()) list.emplace_back(name, base_name(path));
  }
  return list;
}

proof::AttestedComparison summary_of(const NamedComparison& comparison) {
  const proof::ParityReport& report = *comparison.report;
  const StatedBounds bounds = bounds_of(comparison);
  proof::AttestedComparison out;
  out.id = comparison.id;
  out.ours = comparison.ours;
  out.expected = comparison.expected;
  out.precision = bounds.precision;
  out.source = bounds.source;
  out.max_abs_bound = bounds.max_abs;
  out.floor = bounds.floor_db;
  out.max_abs = report.metrics.values.max_abs;
  out.sqnr_db = report.metrics.values.sqnr_db;
  out.output = report.output();
  if (report.has_logits()) {
    out.kl_mean = report.metrics.kl_mean;
    out.top1_agreement = report.metrics.top1_agreement;
  }
  out.greedy_match = report.greedy_match;
  out.greedy_total = report.greedy_total;
  for (const proof::CaseReport& one : report.cases) {
    if (!one.skipped.empty()) continue;
    out.prompts += 1;
    out.tokens += one.tokens;
  }
  return out;
}

proof::AttestedCheckpoint checkpoint_of(const proof::BundleProofOptions& options,
                                        const proof::CheckpointProof& proof) {
  proof::AttestedCheckpoint out;
  out.name = base_name(options.checkpoint);
  out.files = proof.source_files;
  out.weights = proof.tensors.tensors;
  out.weight_bytes = proof.tensors.bytes;
  out.programs = proof.programs.programs;
  return out;
}

ParityAttestation attestation_of(const packer::Bundle& bundle,
                                 const proof::BundleProofOptions& options,
                                 const proof::Verification& v, ThreadPool& pool) {
  proof::BundleDigest digest = proof::digest_open_bundle(bundle, pool);
  ParityAttestation out;
  out.bundle = bundle_name(bundle);
  out.root = std::move(digest.root);
  out.files = std::move(digest.files);
  out.ferry = version();
  out.manifest_sha256 = manifest_digest(bundle.manifest());
  out.model_type = bundle.manifest().model_type;
  if (v.proof) out.checkpoint = checkpoint_of(options, *v.proof);
  out.reference = v.reference_file;
  if (v.other) {
    out.against = {base_name(options.against), manifest_digest(v.other->manifest())};
    // A comparison with another bundle uses only the prompts of the reference.
    out.reference.reset();
  }
  out.options = options_of(options);
  if (!bundle.adapter().empty()) out.options.emplace_back("adapter", bundle.adapter());
  for (const NamedComparison& comparison : comparisons_of(v)) {
    if (comparison.report != nullptr) out.comparisons.push_back(summary_of(comparison));
  }
  Meaning meaning = meaning_of(v);
  out.proves = std::move(meaning.proves);
  out.does_not_prove = std::move(meaning.leaves_open);
  return out;
}

// Returns lines of escaped sentences, in which apostrophes stay as they are.
std::string lines(const char* word, const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& line : list) {
    std::string safe = printable(line);
    for (size_t at = safe.find("\\'"); at != std::string::npos; at = safe.find("\\'", at)) {
      safe.erase(at, 1);
    }
    text += fmt::format("  {}: {}\n", word, safe);
  }
  return text;
}

}  // namespace

Status check_attest_options(const AttestOptions& options, const std::string& bundle) {
  const signing::SigningKey& key = options.key;
  if (options.file.empty()) {
    const bool any = !key.private_key.empty() || !key.passphrase_file.empty() ||
                     !key.certificate.empty() || !key.chain.empty();
    if (!any) return {};
    return fail(ErrorCode::kUsage,
                "--key, --passphrase-file, --certificate and --chain belong to --attest");
  }
  if (key.private_key.empty()) return fail(ErrorCode::kUsage, "--attest needs --key");
  FERRY_RETURN_IF_ERROR(check_directory_of("--attest", options.file, bundle));
  FERRY_RETURN_IF_ERROR(proof::check_replaceable_attestation(options.file));
  // A wrong key is refused before the verification, not after it.
  const auto signer = signing::signer_of(key);
  return signer ? Status() : Failure(signer.error());
}

Status write_attestation_file(const AttestOptions& options, const packer::Bundle& bundle,
                              const proof::BundleProofOptions& verify,
                              const proof::Verification& verification, ThreadPool& pool) {
  if (!verification.parity()) return fail(ErrorCode::kInternal, "an attestation without parity");
  const std::string statement =
      proof::write_attestation(attestation_of(bundle, verify, verification, pool));
  const std::string signed_text = FERRY_TRY(signing::sign_statement(statement, options.key));
  return write_atomically(options.file, signed_text + "\n", IfExists::kReplace);
}

void write_attestation_check(JsonWriter& json, const std::string& file,
                             const proof::AttestationCheck& check) {
  json.key("attestation").begin_object().member("path", file).member("ok", check.holds());
  json.key("signer");
  if (check.signer) {
    json.begin_object().member("curve", check.signer->curve);
    json.member("key_sha256", check.signer->key).member("subject", check.signer->subject);
    json.end_object();
  } else {
    json.null();
  }
  if (check.rejection) {
    json.member("stage", signing::name_of(check.rejection->stage));
    json.member("message", check.rejection->message);
  }
  json.key("claim");
  if (check.statement) {
    json.value(proof::claim_of(*check.statement));
    json.member("ferry", check.statement->ferry).member("sha256", check.statement->root);
    json.member("proves", check.statement->proves);
    json.member("does_not_prove", check.statement->does_not_prove);
  } else {
    json.null();
  }
  json.member("differences", check.differences);
  json.end_object();
}

std::string describe_attestation(const std::string& bundle, const proof::AttestationCheck& check) {
  const ParityAttestation& a = *check.statement;
  const signing::Signer& signer = *check.signer;
  std::string text = fmt::format("{}: {}\n  key        {} ({})\n", printable(bundle),
                                 proof::claim_of(a), signer.key, signer.curve);
  if (!signer.subject.empty()) text += fmt::format("  subject    {}\n", printable(signer.subject));
  if (a.checkpoint) {
    for (const packer::ManifestSourceFile& file : a.checkpoint->files) {
      text += fmt::format("  checkpoint {} {} (tree)\n", printable(file.path), file.sha256_tree);
    }
  }
  if (a.reference) {
    text += fmt::format("  reference  {} {}\n", printable(a.reference->name), a.reference->sha256);
  }
  if (a.against) {
    text += fmt::format("  bundle     {} manifest {}\n", printable(a.against->name),
                        a.against->manifest_sha256);
  }
  text += fmt::format("  ferry      {}\n", printable(a.ferry));
  for (const auto& [name, value] : a.options) {
    text += fmt::format("  option     {} {}\n", printable(name), printable(value));
  }
  return text + lines("proved", a.proves) + lines("not proved", a.does_not_prove);
}

Error attestation_error(const std::string& bundle, const std::string& file,
                        const proof::AttestationCheck& check) {
  if (check.rejection) return {ErrorCode::kBadInput, check.rejection->message};
  return {ErrorCode::kBadInput,
          fmt::format("{}: is not the bundle that {} is about: {} files differ", printable(bundle),
                      printable(file), check.differences.size()),
          check.differences};
}

}  // namespace ferry::cli
