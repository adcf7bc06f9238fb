// Members of a parity attestation (docs/attestation.md). Private to pipeline/.
#pragma once

#include <string_view>

namespace ferry::proof {

inline constexpr std::string_view kType = "_type";
inline constexpr std::string_view kStatementV1 = "https://in-toto.io/Statement/v1";
inline constexpr std::string_view kSubject = "subject";
inline constexpr std::string_view kName = "name";
inline constexpr std::string_view kDigest = "digest";
inline constexpr std::string_view kSha256 = "sha256";
inline constexpr std::string_view kPredicateType = "predicateType";
inline constexpr std::string_view kPredicate = "predicate";
inline constexpr std::string_view kVerdict = "verdict";
inline constexpr std::string_view kParity = "parity";
inline constexpr std::string_view kFerry = "ferry";
inline constexpr std::string_view kModelType = "model_type";
inline constexpr std::string_view kManifestSha256 = "manifest_sha256";
inline constexpr std::string_view kResources = "resources";
inline constexpr std::string_view kAlgorithm = "algorithm";
inline constexpr std::string_view kComparedWith = "compared_with";
inline constexpr std::string_view kCheckpoint = "checkpoint";
inline constexpr std::string_view kFiles = "files";
inline constexpr std::string_view kPath = "path";
inline constexpr std::string_view kBytes = "bytes";
inline constexpr std::string_view kSha256Tree = "sha256_tree";
inline constexpr std::string_view kWeights = "weights";
inline constexpr std::string_view kWeightBytes = "weight_bytes";
inline constexpr std::string_view kPrograms = "programs";
inline constexpr std::string_view kReference = "reference";
inline constexpr std::string_view kEmbedded = "embedded";
inline constexpr std::string_view kPrompts = "prompts";
inline constexpr std::string_view kAgainst = "against";
inline constexpr std::string_view kOptions = "options";
inline constexpr std::string_view kComparisons = "comparisons";
inline constexpr std::string_view kOutputs = "outputs";
inline constexpr std::string_view kId = "id";
inline constexpr std::string_view kOurs = "ours";
inline constexpr std::string_view kExpected = "expected";
inline constexpr std::string_view kOutput = "output";
inline constexpr std::string_view kBounds = "bounds";
inline constexpr std::string_view kPrecision = "precision";
inline constexpr std::string_view kSource = "source";
inline constexpr std::string_view kLogitsMaxAbs = "logits_max_abs";
inline constexpr std::string_view kLogitsFloorDb = "logits_floor_db";
inline constexpr std::string_view kMetrics = "metrics";
inline constexpr std::string_view kMaxAbs = "max_abs";
inline constexpr std::string_view kSqnrDb = "sqnr_db";
inline constexpr std::string_view kKlMean = "kl_mean";
inline constexpr std::string_view kTop1 = "top1_agreement";
inline constexpr std::string_view kGreedyMatch = "greedy_match";
inline constexpr std::string_view kGreedyTotal = "greedy_total";
inline constexpr std::string_view kTokens = "tokens";
inline constexpr std::string_view kProves = "proves";
inline constexpr std::string_view kDoesNotProve = "does_not_prove";

}  // namespace ferry::proof
