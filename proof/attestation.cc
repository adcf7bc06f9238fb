#include "proof/attestation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>

#include "core/file.h"
#include "core/json_writer.h"
#include "core/sha256.h"
#include "core/text.h"
#include "proof/attestation_names.h"
#include "proof/source_digests.h"
#include "signing/model_digest.h"

namespace ferry::proof {
namespace {

std::string digest_of(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

void write_compared_with(JsonWriter& json, const ParityAttestation& a) {
  json.key(kComparedWith).begin_object().key(kCheckpoint);
  if (a.checkpoint) {
    json.begin_object().member(kName, a.checkpoint->name);
    write_source_files(json, a.checkpoint->files);
    json.member(kWeights, a.checkpoint->weights).member(kWeightBytes, a.checkpoint->weight_bytes);
    json.member(kPrograms, a.checkpoint->programs).end_object();
  } else {
    json.null();
  }
  json.key(kReference);
  if (a.reference) {
    json.begin_object().member(kName, a.reference->name);
    json.member(kEmbedded, a.reference->embedded).member(kBytes, a.reference->bytes);
    json.member(kSha256, a.reference->sha256).member(kPrompts, a.reference->prompts).end_object();
  } else {
    json.null();
  }
  json.key(kAgainst);
  if (a.against) {
    json.begin_object().member(kName, a.against->name);
    json.member(kManifestSha256, a.against->manifest_sha256).end_object();
  } else {
    json.null();
  }
  json.end_object();
}

void write_comparison(JsonWriter& json, const AttestedComparison& c) {
  json.begin_object().member(kId, c.id).member(kOurs, c.ours).member(kExpected, c.expected);
  json.member(kOutput, c.output);
  json.key(kBounds).begin_object().member(kPrecision, c.precision).member(kSource, c.source);
  json.member(kLogitsMaxAbs, c.max_abs_bound);
  json.member(kLogitsFloorDb, c.floor);
  json.end_object().key(kMetrics).begin_object();
  json.member(kMaxAbs, c.max_abs).member(kSqnrDb, c.sqnr_db).member(kKlMean, c.kl_mean);
  json.member(kTop1, c.top1_agreement).member(kGreedyMatch, c.greedy_match);
  json.member(kGreedyTotal, c.greedy_total).end_object();
  json.member(kPrompts, c.prompts).member(kTokens, c.tokens).end_object();
}

void write_predicate(JsonWriter& json, const ParityAttestation& a) {
  json.begin_object().member(kVerdict, kParity).member(kFerry, a.ferry);
  json.member(kModelType, a.model_type).member(kManifestSha256, a.manifest_sha256);
  json.key(kResources).begin_array();
  for (const AttestedFile& file : a.files) {
    json.begin_object().member(kName, file.name).member(kDigest, file.sha256);
    json.member(kAlgorithm, kSha256).end_object();
  }
  json.end_array();
  write_compared_with(json, a);
  json.key(kOptions).begin_object();
  for (const auto& [name, value] : a.options) json.member(name, value);
  json.end_object().key(kComparisons).begin_array();
  for (const AttestedComparison& comparison : a.comparisons) write_comparison(json, comparison);
  json.end_array();
  json.member(kProves, a.proves);
  json.member(kDoesNotProve, a.does_not_prove);
  json.end_object();
}

// The files of both, by name.
std::vector<std::string> differences(const std::vector<AttestedFile>& attested,
                                     const std::vector<signing::DigestedPart>& have) {
  std::map<std::string, std::string> left;
  for (const signing::DigestedPart& part : have) left[part.name] = part.sha256;
  std::vector<std::string> lines;
  for (const AttestedFile& file : attested) {
    const auto found = left.find(file.name);
    if (found == left.end()) {
      lines.push_back(fmt::format("{}: is not there", quoted(file.name)));
      continue;
    }
    if (found->second != file.sha256) {
      lines.push_back(fmt::format("{}: is another file", quoted(file.name)));
    }
    left.erase(found);
  }
  for (const auto& [name, digest] : left) {
    lines.push_back(fmt::format("{}: was not there", quoted(name)));
  }
  return lines;
}

std::string bound_words(const AttestedComparison& c) {
  std::string text;
  if (c.max_abs_bound) {
    text = fmt::format("{} within {:g}: at most {:.2e} apart", printable(c.output),
                       *c.max_abs_bound, c.max_abs);
  }
  if (c.source == "noise") {
    text = fmt::format("{} within the noise of f32: at most {:.2e} apart", printable(c.output),
                       c.max_abs);
  }
  if (c.source == "none") {
    text = fmt::format("after {}: SQNR {:.1f} dB, measured", printable(c.precision), c.sqnr_db);
  }
  if (c.floor) {
    text += fmt::format("{}within the error of {}: SQNR {:.1f} dB, {:.1f} dB and more is parity",
                        text.empty() ? "" : "; ", printable(c.precision), c.sqnr_db, *c.floor);
  }
  return text;
}

}  // namespace

std::string root_over(const std::vector<AttestedFile>& files) {
  std::string digests;
  for (const AttestedFile& file : files) digests += from_hex(file.sha256).value_or("");
  return digest_of(digests);
}

BundleDigest digest_open_bundle(const packer::Bundle& bundle, ThreadPool& pool) {
  BundleDigest out;
  const packer::Manifest& manifest = bundle.manifest();
  out.files.push_back({std::string(packer::kManifestName), digest_of(write_manifest(manifest))});
  // Data files are hashed by their tensors in the manifest, other files as a whole.
  for (const packer::ManifestFile& file : manifest.files) {
    const bool has_data = bundle.data().contains(file.path);
    out.files.push_back({file.path, has_data ? std::string() : file.digest});
  }
  pool.parallel_for(out.files.size(), [&](size_t i) {
    AttestedFile& file = out.files[i];
    if (!file.sha256.empty()) return;
    file.sha256 = to_hex(sha256(bundle.data().at(file.name).file.bytes()));
  });
  std::ranges::sort(out.files, {}, &AttestedFile::name);
  out.root = root_over(out.files);
  return out;
}

std::string write_attestation(const ParityAttestation& a) {
  JsonWriter json;
  json.begin_object().member(kType, kStatementV1).key(kSubject).begin_array().begin_object();
  json.member(kName, a.bundle).key(kDigest).begin_object().member(kSha256, a.root);
  json.end_object().end_object().end_array();
  json.member(kPredicateType, kParityPredicate).key(kPredicate);
  write_predicate(json, a);
  json.end_object();
  std::string text = json.take();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Status check_replaceable_attestation(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return {};
  const auto text = read_text_file(path, signing::kMaxSignatureBytes);
  if (text) {
    const auto payload = signing::unverified_payload(*text, printable(path));
    if (payload && read_attestation(*payload, printable(path))) return {};
  }
  return fail(
      ErrorCode::kExists,
      fmt::format("{}: exists and is no parity attestation: not replaced", printable(path)));
}

Result<AttestationCheck> check_attestation(
    const std::string& bundle, const std::string& file, const signing::Trust& trust,
    ThreadPool& pool, const std::function<void(uint64_t, uint64_t)>& progress) {
  AttestationCheck check;
  const std::string text = FERRY_TRY(read_text_file(file, signing::kMaxSignatureBytes));
  signing::Verdict verdict = FERRY_TRY(signing::verify_envelope(text, printable(file), trust));
  if (verdict.rejection) {
    check.rejection = std::move(verdict.rejection);
    return check;
  }
  check.signer = verdict.signer;
  auto statement = read_attestation(verdict.payload, printable(file));
  if (!statement) {
    check.rejection = signing::Rejection{signing::Stage::kStatement, statement.error().message};
    return check;
  }
  check.statement = std::move(*statement);
  const signing::ModelDigest have =
      FERRY_TRY(signing::model_digest(bundle,
                                      {.ignore_paths = {std::string(signing::kSignatureName)},
                                       .shard_size = 0,
                                       .progress = progress},
                                      pool));
  check.differences = differences(check.statement->files, have.parts);
  return check;
}

std::string claim_of(const ParityAttestation& a) {
  std::string text = "computes ";
  if (a.checkpoint) {
    text += fmt::format("what the checkpoint {} computes", quoted(a.checkpoint->name));
    if (a.reference) {
      text += fmt::format(", and that what the reference {} says", quoted(a.reference->name));
    }
  } else if (a.against) {
    text += fmt::format("what the bundle {} computes", quoted(a.against->name));
  } else {
    text += fmt::format("what the reference {} says",
                        quoted(a.reference ? a.reference->name : std::string()));
  }
  const auto outputs = std::ranges::find(a.comparisons, kOutputs, &AttestedComparison::id);
  const std::string bounds = outputs == a.comparisons.end() ? std::string() : bound_words(*outputs);
  return bounds.empty() ? text : text + ", " + bounds;
}

}  // namespace ferry::proof
