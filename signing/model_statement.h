// The in-toto statement of OpenSSF Model Signing 1.0: what the payload of a model's signature says.
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

// A file, or with shards a part of one.
struct Resource {
  std::string name;             // canonical
  uint64_t begin = 0, end = 0;  // of a shard: [begin, end) in bytes
  std::string digest;           // raw bytes
};

struct ModelStatement {
  std::string model;  // what the signer calls it; for people
  HashType hash = HashType::kSha256;
  uint64_t shard_size = 0;  // 0: files as a whole
  std::vector<std::string> ignore_paths = {};
  std::vector<Resource> resources = {};
};

// As the statement names it: "NAME", or "NAME:BEGIN:END".
std::string full_name(const Resource& resource, bool shard);

// SHA-256 over the digests, in the order of the list; raw bytes.
std::string root_digest(const std::vector<Resource>& resources);

std::string write_statement(const ModelStatement& statement);

// kBadInput for what breaks the rules of the specification or ours, kUnsupported for another hash
// and for symbolic links that are followed. `name` begins the messages. `file_name` is that of a
// model that is one file, for which some signers write "."; otherwise empty.
Result<ModelStatement> read_statement(std::string_view text, const std::string& name,
                                      const std::string& file_name);

}  // namespace ferry::signing
