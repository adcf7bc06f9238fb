// Writes and reads parity attestations. A statement that says anything other than parity, or says
// it in another form, is refused, so that it is never taken for a statement of parity.
#include "proof/attestation.h"

#include <fmt/format.h>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "core/json_writer.h"
#include "core/sha256.h"
#include "core/text.h"
#include "proof/compared_files.h"
#include "signing/model_digest.h"

namespace ferry::proof {
namespace {

// Members of the statement (docs/attestation.md).
constexpr std::string_view kType = "_type";
constexpr std::string_view kStatementV1 = "https://in-toto.io/Statement/v1";
constexpr std::string_view kSubject = "subject";
constexpr std::string_view kName = "name";
constexpr std::string_view kDigest = "digest";
constexpr std::string_view kSha256 = "sha256";
constexpr std::string_view kPredicateType = "predicateType";
constexpr std::string_view kPredicate = "predicate";
constexpr std::string_view kVerdict = "verdict";
constexpr std::string_view kParity = "parity";
constexpr std::string_view kFerry = "ferry";
constexpr std::string_view kModelType = "model_type";
constexpr std::string_view kManifestSha256 = "manifest_sha256";
constexpr std::string_view kResources = "resources";
constexpr std::string_view kAlgorithm = "algorithm";
constexpr std::string_view kComparedWith = "compared_with";
constexpr std::string_view kCheckpoint = "checkpoint";
constexpr std::string_view kFiles = "files";
constexpr std::string_view kPath = "path";
constexpr std::string_view kBytes = "bytes";
constexpr std::string_view kSha256Tree = "sha256_tree";
constexpr std::string_view kWeights = "weights";
constexpr std::string_view kWeightBytes = "weight_bytes";
constexpr std::string_view kPrograms = "programs";
constexpr std::string_view kReference = "reference";
constexpr std::string_view kEmbedded = "embedded";
constexpr std::string_view kPrompts = "prompts";
constexpr std::string_view kAgainst = "against";
constexpr std::string_view kOptions = "options";
constexpr std::string_view kComparisons = "comparisons";
constexpr std::string_view kOutputs = "outputs";
constexpr std::string_view kId = "id";
constexpr std::string_view kOurs = "ours";
constexpr std::string_view kExpected = "expected";
constexpr std::string_view kOutput = "output";
constexpr std::string_view kBounds = "bounds";
constexpr std::string_view kPrecision = "precision";
constexpr std::string_view kSource = "source";
constexpr std::string_view kLogitsMaxAbs = "logits_max_abs";
constexpr std::string_view kLogitsFloorDb = "logits_floor_db";
constexpr std::string_view kMetrics = "metrics";
constexpr std::string_view kMaxAbs = "max_abs";
constexpr std::string_view kSqnrDb = "sqnr_db";
constexpr std::string_view kKlMean = "kl_mean";
constexpr std::string_view kTop1 = "top1_agreement";
constexpr std::string_view kGreedyMatch = "greedy_match";
constexpr std::string_view kGreedyTotal = "greedy_total";
constexpr std::string_view kTokens = "tokens";
constexpr std::string_view kProves = "proves";
constexpr std::string_view kDoesNotProve = "does_not_prove";

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

// Compares the files of both lists by name.
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

using nlohmann::json;

class AttestationReader {
 public:
  explicit AttestationReader(const std::string& name) : name_(name) {}

  Result<ParityAttestation> read(const json& statement) {
    if (!statement.is_object()) return wrong("it is not an object");
    FERRY_RETURN_IF_ERROR(expect(statement, kType, kStatementV1));
    FERRY_RETURN_IF_ERROR(expect(statement, kPredicateType, kParityPredicate));
    FERRY_RETURN_IF_ERROR(read_subject(statement));
    const json& predicate = FERRY_TRY(object(statement, kPredicate)).get();
    FERRY_RETURN_IF_ERROR(expect(predicate, kVerdict, kParity));
    out_.ferry = FERRY_TRY(text(predicate, kFerry));
    out_.model_type = FERRY_TRY(text(predicate, kModelType));
    out_.manifest_sha256 = FERRY_TRY(digest(predicate, kManifestSha256));
    FERRY_RETURN_IF_ERROR(read_files(predicate));
    FERRY_RETURN_IF_ERROR(read_compared_with(predicate));
    FERRY_RETURN_IF_ERROR(read_options(predicate));
    for (const json& entry : FERRY_TRY(array(predicate, kComparisons)).get()) {
      out_.comparisons.push_back(FERRY_TRY(read_comparison(entry)));
    }
    if (!std::ranges::count(out_.comparisons, kOutputs, &AttestedComparison::id)) {
      return wrong(fmt::format("{} has none of {}", kComparisons, quoted(kOutputs)));
    }
    out_.proves = FERRY_TRY(lines(predicate, kProves));
    out_.does_not_prove = FERRY_TRY(lines(predicate, kDoesNotProve));
    return std::move(out_);
  }

 private:
  using Reference = std::reference_wrapper<const json>;

  Failure wrong(const std::string& what) const {
    return bad_input(
        fmt::format("{}: the signed statement is no parity attestation: {}", name_, what));
  }

  Result<Reference> find(const json& parent, std::string_view member) const {
    const auto found = parent.is_object() ? parent.find(member) : parent.end();
    if (!parent.is_object() || found == parent.end()) {
      return wrong(fmt::format("{} is missing", member));
    }
    return Reference(*found);
  }
  Result<Reference> object(const json& parent, std::string_view member) const {
    const Reference found = FERRY_TRY(find(parent, member));
    if (!found.get().is_object()) return wrong(fmt::format("{} is not an object", member));
    return found;
  }
  Result<Reference> array(const json& parent, std::string_view member) const {
    const Reference found = FERRY_TRY(find(parent, member));
    if (!found.get().is_array()) return wrong(fmt::format("{} is not an array", member));
    return found;
  }
  Result<std::string> text(const json& parent, std::string_view member) const {
    const Reference found = FERRY_TRY(find(parent, member));
    if (!found.get().is_string()) return wrong(fmt::format("{} is not a string", member));
    return found.get().get<std::string>();
  }
  Result<std::string> digest(const json& parent, std::string_view member) const {
    std::string digits = FERRY_TRY(text(parent, member));
    if (digits.size() != 64 || !from_hex(digits))
      return wrong(fmt::format("{} is not a SHA-256", member));
    return digits;
  }
  Result<uint64_t> count(const json& parent, std::string_view member) const {
    const Reference found = FERRY_TRY(find(parent, member));
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    if (!found.get().is_number_unsigned() || found.get().get<uint64_t>() > kMost) {
      return wrong(fmt::format("{} is not a count", member));
    }
    return found.get().get<uint64_t>();
  }
  Result<double> number(const json& parent, std::string_view member) const {
    const Reference found = FERRY_TRY(find(parent, member));
    if (!found.get().is_number()) return wrong(fmt::format("{} is not a number", member));
    return found.get().get<double>();
  }
  Result<std::optional<double>> optional_number(const json& parent, std::string_view member) const {
    const Reference found = FERRY_TRY(find(parent, member));
    if (found.get().is_null()) return std::optional<double>();
    return std::optional(FERRY_TRY(number(parent, member)));
  }
  Result<std::vector<std::string>> lines(const json& parent, std::string_view member) const {
    std::vector<std::string> all;
    for (const json& line : FERRY_TRY(array(parent, member)).get()) {
      if (!line.is_string()) return wrong(fmt::format("{} has no strings", member));
      all.push_back(line.get<std::string>());
    }
    return all;
  }
  Status expect(const json& parent, std::string_view member, std::string_view value) const {
    const std::string found = FERRY_TRY(text(parent, member));
    if (found == value) return {};
    return wrong(fmt::format("{} is {}, not {}", member, quoted(found), quoted(value)));
  }

  Status read_subject(const json& statement) {
    const json& subjects = FERRY_TRY(array(statement, kSubject)).get();
    if (subjects.size() != 1) return wrong("it has not one subject");
    out_.bundle = FERRY_TRY(text(subjects[0], kName));
    const json& digests = FERRY_TRY(object(subjects[0], kDigest)).get();
    out_.root = FERRY_TRY(digest(digests, kSha256));
    return {};
  }

  Status read_files(const json& predicate) {
    std::set<std::string> names;
    for (const json& entry : FERRY_TRY(array(predicate, kResources)).get()) {
      AttestedFile file;
      file.name = FERRY_TRY(text(entry, kName));
      file.sha256 = FERRY_TRY(digest(entry, kDigest));
      FERRY_RETURN_IF_ERROR(expect(entry, kAlgorithm, kSha256));
      if (!names.insert(file.name).second) {
        return wrong(fmt::format("{} lists {} twice", kResources, quoted(file.name)));
      }
      out_.files.push_back(std::move(file));
    }
    if (out_.files.empty() || root_over(out_.files) != out_.root) {
      return wrong("the digest of its subject is not that of its resources");
    }
    return {};
  }

  Result<AttestedCheckpoint> read_checkpoint(const json& from) const {
    AttestedCheckpoint out;
    out.name = FERRY_TRY(text(from, kName));
    for (const json& file : FERRY_TRY(array(from, kFiles)).get()) {
      packer::ManifestSourceFile& read = out.files.emplace_back();
      read.path = FERRY_TRY(text(file, kPath));
      read.bytes = FERRY_TRY(count(file, kBytes));
      read.sha256_tree = FERRY_TRY(digest(file, kSha256Tree));
    }
    out.weights = FERRY_TRY(count(from, kWeights));
    out.weight_bytes = FERRY_TRY(count(from, kWeightBytes));
    out.programs = FERRY_TRY(count(from, kPrograms));
    return out;
  }
  Result<ReferenceFile> read_reference(const json& from) const {
    ReferenceFile out;
    out.name = FERRY_TRY(text(from, kName));
    const Reference embedded = FERRY_TRY(find(from, kEmbedded));
    if (!embedded.get().is_boolean()) return wrong(fmt::format("{} is not a boolean", kEmbedded));
    out.embedded = embedded.get().get<bool>();
    out.bytes = FERRY_TRY(count(from, kBytes));
    out.sha256 = FERRY_TRY(digest(from, kSha256));
    out.prompts = FERRY_TRY(count(from, kPrompts));
    return out;
  }
  Status read_compared_with(const json& predicate) {
    const json& with = FERRY_TRY(object(predicate, kComparedWith)).get();
    const Reference checkpoint = FERRY_TRY(find(with, kCheckpoint));
    if (!checkpoint.get().is_null()) out_.checkpoint = FERRY_TRY(read_checkpoint(checkpoint));
    const Reference reference = FERRY_TRY(find(with, kReference));
    if (!reference.get().is_null()) out_.reference = FERRY_TRY(read_reference(reference));
    const Reference against = FERRY_TRY(find(with, kAgainst));
    if (!against.get().is_null()) {
      AttestedBundle& bundle = out_.against.emplace();
      bundle.name = FERRY_TRY(text(against, kName));
      bundle.manifest_sha256 = FERRY_TRY(digest(against, kManifestSha256));
    }
    if (out_.checkpoint || out_.reference || out_.against) return {};
    return wrong("it was compared with nothing");
  }

  Status read_options(const json& predicate) {
    const json& options = FERRY_TRY(object(predicate, kOptions)).get();
    for (const auto& [name, value] : options.items()) {
      if (!value.is_string()) return wrong(fmt::format("{} has no strings", kOptions));
      out_.options.emplace_back(name, value.get<std::string>());
    }
    return {};
  }

  Result<AttestedComparison> read_comparison(const json& from) const {
    AttestedComparison out;
    out.id = FERRY_TRY(text(from, kId));
    out.ours = FERRY_TRY(text(from, kOurs));
    out.expected = FERRY_TRY(text(from, kExpected));
    if (from.contains(kOutput)) out.output = FERRY_TRY(text(from, kOutput));
    const json& bounds = FERRY_TRY(object(from, kBounds)).get();
    out.precision = FERRY_TRY(text(bounds, kPrecision));
    out.source = FERRY_TRY(text(bounds, kSource));
    out.max_abs_bound = FERRY_TRY(optional_number(bounds, kLogitsMaxAbs));
    out.floor = FERRY_TRY(optional_number(bounds, kLogitsFloorDb));
    const json& metrics = FERRY_TRY(object(from, kMetrics)).get();
    out.max_abs = FERRY_TRY(number(metrics, kMaxAbs));
    if (out.max_abs < 0) return wrong(fmt::format("{} is negative", kMaxAbs));
    out.sqnr_db = FERRY_TRY(number(metrics, kSqnrDb));
    out.kl_mean = FERRY_TRY(optional_number(metrics, kKlMean));
    out.top1_agreement = FERRY_TRY(optional_number(metrics, kTop1));
    out.greedy_match = static_cast<int64_t>(FERRY_TRY(count(metrics, kGreedyMatch)));
    out.greedy_total = static_cast<int64_t>(FERRY_TRY(count(metrics, kGreedyTotal)));
    out.prompts = static_cast<int64_t>(FERRY_TRY(count(from, kPrompts)));
    out.tokens = static_cast<int64_t>(FERRY_TRY(count(from, kTokens)));
    return out;
  }

  const std::string& name_;
  ParityAttestation out_;
};

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

Result<ParityAttestation> read_attestation(std::string_view text, const std::string& name) {
  const json statement = FERRY_TRY(parse_json(text, name));
  return AttestationReader(name).read(statement);
}

}  // namespace ferry::proof
