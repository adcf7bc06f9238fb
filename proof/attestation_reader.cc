// Reads parity attestations. A statement that says anything else but parity, or says it in another
// form, is refused: it must never be taken for one.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "proof/attestation.h"
#include "proof/attestation_names.h"

namespace ferry::proof {
namespace {

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

Result<ParityAttestation> read_attestation(std::string_view text, const std::string& name) {
  const json statement = FERRY_TRY(parse_json(text, name));
  return AttestationReader(name).read(statement);
}

}  // namespace ferry::proof
