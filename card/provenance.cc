#include "card/card.h"

#include <fmt/format.h>

#include "card/texts.h"
#include "core/json_writer.h"
#include "packer/manifest.h"

namespace ferry::card {
namespace {

void write_sha256(JsonWriter& json, std::string_view name, std::string_view sha256) {
  json.begin_object().member("name", name).key("digest").begin_object();
  json.member("sha256", sha256).end_object().end_object();
}

// The first subject is that of the bundle's signature and of parity attestations. The files follow,
// so that verifiers that know files only find them.
void write_subjects(JsonWriter& json, const Facts& facts) {
  json.key("subject").begin_array();
  write_sha256(json, facts.bundle, facts.root);
  for (const FactFile& file : facts.files) write_sha256(json, file.name, file.sha256);
  json.end_array();
}

void write_build_parameters(JsonWriter& json, const Facts& facts) {
  json.key("externalParameters").begin_object();
  json.member("checkpoint", facts.checkpoint_name).key("options").begin_array();
  for (const packer::ManifestOption& option : facts.manifest.options) {
    json.begin_object().member("name", option.name).member("value", option.value).end_object();
  }
  json.end_array().end_object();
  json.key("internalParameters").begin_object();
  json.member("bundle_version", facts.manifest.version);
  json.member("manifest_sha256", facts.manifest_sha256).end_object();
}

void write_source(JsonWriter& json, const Facts& facts, const FactSource& source) {
  json.begin_object().member("name", source.name);
  const std::string address =
      fmt::format("https://huggingface.co/{}/resolve/{}/{}", facts.checkpoint_name,
                  facts.checkpoint_commit, source.name);
  const bool is_known = is_hub_name(facts.checkpoint_name) && !facts.checkpoint_commit.empty();
  if (is_known && is_web_address(address)) json.member("uri", address);
  json.key("digest").begin_object();
  if (!source.sha256.empty()) json.member("sha256", source.sha256);
  if (!source.sha256_tree.empty()) json.member("ferry_sha256_tree", source.sha256_tree);
  json.end_object().key("annotations").begin_object().member("bytes", source.bytes);
  json.end_object().end_object();
}

void write_run(JsonWriter& json, const Facts& facts, std::string_view builder) {
  json.key("runDetails").begin_object().key("builder").begin_object().member("id", builder);
  const packer::ManifestTool& tool = facts.manifest.tool;
  if (!tool.name.empty()) {
    json.key("version").begin_object().member(tool.name, tool.version).end_object();
  }
  json.end_object();
  if (facts.proof) {
    json.key("byproducts").begin_array();
    write_sha256(json, facts.proof->name, facts.proof->sha256);
    json.end_array();
  }
  json.end_object();
}

}  // namespace

std::string provenance(const Facts& facts, std::string_view builder) {
  JsonWriter json;
  json.begin_object().member("_type", "https://in-toto.io/Statement/v1");
  write_subjects(json, facts);
  json.member("predicateType", kProvenancePredicate).key("predicate").begin_object();
  json.key("buildDefinition").begin_object().member("buildType", kBuildType);
  write_build_parameters(json, facts);
  json.key("resolvedDependencies").begin_array();
  for (const FactSource& source : facts.sources) write_source(json, facts, source);
  json.end_array().end_object();
  write_run(json, facts, builder);
  json.end_object().end_object();
  std::string text = json.take();
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace ferry::card
