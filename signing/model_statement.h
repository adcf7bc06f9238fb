// The in-toto statement of OpenSSF Model Signing 1.0, which is the payload of a model's signature.
// Private to signing/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "signing/model_hash.h"

namespace ferry::signing {

// The type of the predicate.
inline constexpr std::string_view kModelSignature = "https://model_signing/signature/v1.0";

// A file or, with shards, a part of a file.
struct Resource {
  std::string name;             // a canonical name
  uint64_t begin = 0, end = 0;  // bytes [begin, end) of a shard
  std::string digest;           // raw bytes
};

struct ModelStatement {
  std::string model;  // the signer's name of the model, for people
  HashType hash = HashType::kSha256;
  uint64_t shard_size = 0;  // 0 if files are hashed as a whole
  std::vector<std::string> ignore_paths = {};
  std::vector<Resource> resources = {};
};

// Returns the name in the statement: "NAME", or "NAME:BEGIN:END".
std::string full_name(const Resource& resource, bool shard);

// Returns the SHA-256 over the digests in the order of the list, as raw bytes.
std::string root_digest(const std::vector<Resource>& resources);

std::string write_statement(const ModelStatement& statement);

// kBadInput for a text that breaks the rules of the specification or of Ferry; kUnsupported for
// another hash and for symbolic links that are followed. `name` begins the messages. `file_name` is
// the name of a model that is one file, for which some signers write "."; it is empty for a folder.
Result<ModelStatement> read_statement(std::string_view text, const std::string& name,
                                      const std::string& file_name);

}  // namespace ferry::signing
