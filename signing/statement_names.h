// Members and values of the JSON of statements. Private to signing/.
#pragma once

#include <string_view>

namespace ferry::signing {

inline constexpr std::string_view kType = "_type";
inline constexpr std::string_view kStatementV1 = "https://in-toto.io/Statement/v1";
inline constexpr std::string_view kSubject = "subject";
inline constexpr std::string_view kName = "name";
inline constexpr std::string_view kDigest = "digest";
inline constexpr std::string_view kSha256Name = "sha256";
inline constexpr std::string_view kPredicateType = "predicateType";
inline constexpr std::string_view kModelSignature = "https://model_signing/signature/v1.0";
inline constexpr std::string_view kPredicate = "predicate";
inline constexpr std::string_view kResources = "resources";
inline constexpr std::string_view kAlgorithm = "algorithm";
inline constexpr std::string_view kSerialization = "serialization";
inline constexpr std::string_view kMethod = "method";
inline constexpr std::string_view kFiles = "files";
inline constexpr std::string_view kShards = "shards";
inline constexpr std::string_view kHashType = "hash_type";
inline constexpr std::string_view kAllowSymlinks = "allow_symlinks";
inline constexpr std::string_view kShardSize = "shard_size";
inline constexpr std::string_view kIgnorePaths = "ignore_paths";

}  // namespace ferry::signing
