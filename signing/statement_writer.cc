#include <fmt/format.h>

#include "core/json_writer.h"
#include "core/sha256.h"
#include "signing/model_statement.h"
#include "signing/statement_names.h"

namespace ferry::signing {
namespace {

void write_resources(JsonWriter& json, const ModelStatement& statement) {
  json.key(kResources).begin_array();
  for (const Resource& resource : statement.resources) {
    json.begin_object();
    json.member(kName, full_name(resource, statement.shard_size > 0));
    json.member(kDigest, hex_of(resource.digest));
    json.member(kAlgorithm, name_of(statement.hash)).end_object();
  }
  json.end_array();
}

void write_serialization(JsonWriter& json, const ModelStatement& statement) {
  const bool shards = statement.shard_size > 0;
  json.key(kSerialization).begin_object();
  json.member(kMethod, shards ? kShards : kFiles);
  json.member(kHashType, name_of(statement.hash)).member(kAllowSymlinks, false);
  if (shards) json.member(kShardSize, statement.shard_size);
  json.key(kIgnorePaths).begin_array();
  for (const std::string& path : statement.ignore_paths) json.value(path);
  json.end_array().end_object();
}

}  // namespace

std::string full_name(const Resource& resource, bool shard) {
  if (!shard) return resource.name;
  return fmt::format("{}:{}:{}", resource.name, resource.begin, resource.end);
}

std::string root_digest(const std::vector<Resource>& resources) {
  Sha256 hash;
  for (const Resource& resource : resources) {
    hash.update(std::as_bytes(std::span(resource.digest)));
  }
  const Digest digest = hash.finish();
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string write_statement(const ModelStatement& statement) {
  JsonWriter json;
  json.begin_object().member(kType, kStatementV1);
  json.key(kSubject).begin_array().begin_object().member(kName, statement.model);
  json.key(kDigest).begin_object();
  json.member(kSha256Name, hex_of(root_digest(statement.resources)));
  json.end_object().end_object().end_array();
  json.member(kPredicateType, kModelSignature).key(kPredicate).begin_object();
  write_serialization(json, statement);
  write_resources(json, statement);
  json.end_object().end_object();
  std::string text = json.take();
  text.pop_back();  // removes the line end
  return text;
}

}  // namespace ferry::signing
