#include "card/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "core/directory.h"
#include "core/file.h"
#include "core/json.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "plan/bundle_options.h"
#include "proof/compared_files.h"
#include "signing/model_digest.h"
#include "signing/verify_envelope.h"

namespace ferry::card {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxCardBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr std::array<const char*, 2> kCardNames = {"README.md", "MODEL_CARD.md"};
constexpr const char* kConfig = "config.json";

std::string name_of_path(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  return error ? base_name(path) : canonical.filename().string();
}

// The manifest ends with its own digest, 64 digits in quotes.
std::string self_digest(const packer::Manifest& manifest) {
  constexpr size_t kDigits = 64;
  const std::string text = packer::write_manifest(manifest);
  const size_t end = text.rfind('"');
  return end == std::string::npos || end < kDigits ? std::string()
                                                   : text.substr(end - kDigits, kDigits);
}

FactFile::Kind kind_of(const packer::Bundle& bundle, const std::string& name) {
  using Kind = FactFile::Kind;
  if (name == packer::kManifestName) return Kind::kManifest;
  if (bundle.data().contains(name)) return Kind::kWeights;
  if (name == bundle.manifest().reference) return Kind::kReference;
  for (const packer::ManifestProgram* program : bundle.manifest().programs()) {
    if (program->file == name) return Kind::kProgram;
  }
  return Kind::kOther;
}

void list_files(const packer::Bundle& bundle, const proof::BundleDigest& digest, Facts& facts) {
  std::map<std::string, uint64_t> sizes;
  for (const packer::ManifestFile& file : facts.manifest.files) sizes[file.path] = file.bytes;
  sizes[std::string(packer::kManifestName)] = packer::write_manifest(facts.manifest).size();
  for (const proof::AttestedFile& file : digest.files) {
    facts.files.push_back({file.name, file.sha256, sizes[file.name], kind_of(bundle, file.name)});
    facts.bytes += sizes[file.name];
  }
}

// Compares the digests that model.sig lists with those of the files. Who signed is not judged here.
Status check_signature(const packer::Bundle& bundle, Facts& facts) {
  const std::string path = bundle.path() + "/" + std::string(signing::kSignatureName);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  const std::string name = printable(path);
  const std::string text = FERRY_TRY(read_text_file(path, signing::kMaxSignatureBytes));
  const std::string payload = FERRY_TRY(signing::unverified_payload(text, name));
  const json statement = FERRY_TRY(parse_json(payload, name));
  const json::json_pointer list("/predicate/resources");
  if (!statement.is_object() || !statement.contains(list) || !statement[list].is_array()) {
    return bad_input(fmt::format("{}: is not the signature of a model", name));
  }
  std::map<std::string, std::string> digests;
  for (const FactFile& file : facts.files) digests[file.name] = file.sha256;
  for (const json& entry : statement[list]) {
    const json file = entry.is_object() ? entry.value("name", json()) : json();
    const auto found = file.is_string() ? digests.find(file.get<std::string>()) : digests.end();
    if (found == digests.end()) continue;  // a part of a file
    if (entry.value("digest", json()) == found->second) continue;
    if (entry.value("algorithm", json()) != "sha256") continue;
    return bad_input(fmt::format("{}: is the signature of other files: {} has another digest", name,
                                 quoted(found->first)));
  }
  facts.is_signed = true;
  return {};
}

Status read_architecture(const packer::Bundle& bundle, Facts& facts) {
  if (!bundle.has_text(kConfig)) return {};
  const std::string text = FERRY_TRY(bundle.text(kConfig, kMaxConfigBytes));
  const json config = FERRY_TRY(parse_json(text, printable(bundle.path_of(kConfig))));
  const auto found = config.is_object() ? config.find("architectures") : config.end();
  if (!config.is_object() || found == config.end() || !found->is_array()) return {};
  if (!found->empty() && found->front().is_string()) facts.architecture = found->front();
  return {};
}

// -- the card of the checkpoint

bool is_regular(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Reads the card beside the checkpoint or, if there is no checkpoint, the one in the bundle.
Status read_card(const packer::Bundle& bundle, const FactOptions& options, Facts& facts) {
  std::error_code error;
  if (!options.checkpoint.empty()) {
    const fs::path given = options.checkpoint;
    const fs::path parent = given.has_parent_path() ? given.parent_path() : fs::path(".");
    const std::string folder = fs::is_directory(given, error) ? given : parent;
    const Directory directory = FERRY_TRY(Directory::open(folder));
    for (const char* name : kCardNames) {
      if (!directory.contains(name)) continue;
      // A link may lead only to where the links of the other files of a checkpoint may lead.
      const InputFile file = FERRY_TRY(checkpoint::open_in_checkpoint(directory, name));
      facts.card_file = directory.path_of(name);
      const std::string text = FERRY_TRY(read_text(file, kMaxCardBytes));
      facts.card = FERRY_TRY(read_checkpoint_card(text, printable(facts.card_file)));
      return {};
    }
  }
  for (const char* name : kCardNames) {
    if (!bundle.has_text(name)) continue;
    facts.card_file = bundle.path_of(name);
    const std::string text = FERRY_TRY(bundle.text(name, kMaxCardBytes));
    facts.card = FERRY_TRY(read_checkpoint_card(text, printable(facts.card_file)));
    return {};
  }
  return {};
}

// -- the checkpoint

// The cache of Hugging Face's tools has snapshots in models--ORG--NAME/snapshots/COMMIT.
void name_checkpoint(const FactOptions& options, Facts& facts) {
  constexpr std::string_view kEntry = "models--";
  std::error_code error;
  const fs::path path = fs::absolute(options.checkpoint, error).lexically_normal();
  for (auto part = path.begin(); part != path.end() && !options.checkpoint.empty(); ++part) {
    std::string name = part->string();
    if (!name.starts_with(kEntry)) continue;
    name.erase(0, kEntry.size());
    const size_t dashes = name.find("--");
    if (dashes == std::string::npos) continue;
    facts.checkpoint_name = name.replace(dashes, 2, "/");
    auto next = std::next(part);
    if (next == path.end() || *next != "snapshots" || ++next == path.end()) continue;
    facts.checkpoint_commit = next->string();
  }
  if (options.checkpoint_name.empty()) return;
  if (options.checkpoint_name != facts.checkpoint_name) facts.checkpoint_commit.clear();
  facts.checkpoint_name = options.checkpoint_name;
}

Result<std::string> sha256_of(const std::string& path) {
  const proof::HashedFile file = FERRY_TRY(proof::HashedFile::open(path));
  return FERRY_TRY(file.reference(/*embedded=*/false)).sha256;
}

// Returns the path of a source file, which the manifest names relative to the checkpoint.
std::string source_path(const std::string& checkpoint, const std::string& name) {
  std::error_code error;
  if (fs::is_directory(checkpoint, error)) return checkpoint + "/" + name;
  if (base_name(checkpoint) == name) return checkpoint;
  return (fs::path(checkpoint).parent_path() / name).string();
}

// Checks by every byte that the bundle was made of this checkpoint, and hashes its files.
Status read_sources(const packer::Bundle& bundle, const FactOptions& options, ThreadPool& pool,
                    Facts& facts) {
  const plan::ConvertOptions stated =
      FERRY_TRY(plan::options_of(bundle, {.path = options.checkpoint,
                                          .config = options.config,
                                          .lora = options.lora,
                                          .mmproj = options.mmproj}));
  const plan::Conversion conversion = FERRY_TRY(plan::plan_again(bundle, stated, pool));
  const auto have = FERRY_TRY(proof::digest_sources(conversion, pool));
  if (!proof::same_files(have, facts.manifest.source_files)) {
    return bad_input(fmt::format("{}: is not the checkpoint that {} was made of: its files differ",
                                 printable(options.checkpoint), printable(bundle.path())));
  }
  for (FactSource& source : facts.sources) {
    std::string path = source_path(options.checkpoint, source.name);
    // Files of an adapter are in its own folder.
    if (!is_regular(path) && !options.lora.empty()) path = source_path(options.lora, source.name);
    source.sha256 = FERRY_TRY(sha256_of(path));
  }
  std::error_code error;
  if (!fs::is_directory(options.checkpoint, error)) return {};
  for (const FactFile& file : facts.files) {
    const std::string path = options.checkpoint + "/" + file.name;
    if (file.kind != FactFile::Kind::kOther || !is_regular(path)) continue;
    if (FERRY_TRY(sha256_of(path)) != file.sha256) continue;
    facts.sources.push_back({file.name, file.bytes, "", file.sha256, file.name});
  }
  return {};
}

}  // namespace

std::string quantization_of(const packer::Manifest& manifest) {
  const packer::ManifestComponent* main = manifest.main();
  return main == nullptr ? std::string() : main->quantization;
}

Result<Facts> gather_facts(const packer::Bundle& bundle, const FactOptions& options,
                           ThreadPool& pool) {
  Facts facts;
  facts.bundle = name_of_path(bundle.path());
  facts.manifest = bundle.manifest();
  facts.manifest_sha256 = self_digest(facts.manifest);
  FERRY_RETURN_IF_ERROR(read_card(bundle, options, facts));
  FERRY_RETURN_IF_ERROR(read_architecture(bundle, facts));
  name_checkpoint(options, facts);
  const proof::BundleDigest digest = proof::digest_open_bundle(bundle, pool);
  facts.root = digest.root;
  list_files(bundle, digest, facts);
  FERRY_RETURN_IF_ERROR(check_signature(bundle, facts));
  if (!options.proof.empty()) {
    facts.proof = FERRY_TRY(read_proof(options.proof,
                                       {.digest = digest, .manifest_sha256 = facts.manifest_sha256},
                                       options.trust));
  }
  for (const packer::ManifestSourceFile& file : facts.manifest.source_files) {
    facts.sources.push_back({file.path, file.bytes, file.sha256_tree});
  }
  if (!options.checkpoint.empty()) {
    FERRY_RETURN_IF_ERROR(read_sources(bundle, options, pool, facts));
  }
  return facts;
}

}  // namespace ferry::card
