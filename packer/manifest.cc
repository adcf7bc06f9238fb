// write_manifest() and read_manifest(). The members are described once, below, for both directions;
// docs/bundle_format.md is the specification. A member that is newer than kOldestManifestVersion is
// described under `if (a.since(VERSION))`, at its position among the others. Manifests of earlier
// versions do not have the member, and its field keeps its default value.
#include "packer/manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/json.h"
#include "core/program_interface.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/digests.h"
#include "packer/manifest_json.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kFormatName = "ferry-bundle";
constexpr const char* kSelfDigest = "manifest_sha256";

}  // namespace

// These functions are outside of the unnamed namespace, because ManifestWriter and ManifestReader
// find them by argument-dependent lookup.

template <class Archive>
static void describe(Archive& a, Encoding& encoding) {
  a.real("scale", encoding.scale);
  a.count("zero_point", encoding.zero_point);
}

template <class Archive>
static void describe(Archive& a, ManifestPort& port) {
  a.text("name", port.name);
  a.dtype("dtype", port.dtype);
  a.shape("shape", port.shape);
  if (a.since(3)) a.optional_object("encoding", port.encoding);
}

template <class Archive>
static void describe(Archive& a, ManifestProbe& probe) {
  a.text("name", probe.name);
  a.index("value", probe.value);
}

template <class Archive>
static void describe(Archive& a, ManifestBuffer& buffer) {
  a.text("name", buffer.name);
  a.index("value", buffer.value);
  a.dtype("dtype", buffer.dtype);
  a.shape("shape", buffer.shape);
  a.count("bytes", buffer.bytes);
  a.choice("init", buffer.init, {"none", "stored"});
}

template <class Archive>
static void describe(Archive& a, ManifestMethod& method) {
  a.text("name", method.name);
  if (a.since(9)) a.text("program_method", method.program_method);
  a.objects("inputs", method.inputs);
  a.objects("outputs", method.outputs);
  a.objects("probes", method.probes);
  a.objects("buffers", method.buffers);
  a.count("activation_bytes", method.activation_bytes);
  a.count("activation_lower_bound", method.activation_lower_bound);
}

template <class Archive>
static void describe(Archive& a, ManifestProgram& program) {
  a.file_name("file", program.file);
  a.file_names("data_files", program.data_files);
  a.index("first_layer", program.first_layer);
  a.index("layer_count", program.layer_count);
  a.count("state_bytes", program.state_bytes);
  if (a.since(5)) a.texts("backends", program.backends);
  a.objects("methods", program.methods);
}

template <class Archive>
static void describe(Archive& a, ManifestComponent& component) {
  a.text("role", component.role);
  if (a.since(4)) a.text("weight_dtype", component.weight_dtype);
  if (a.since(5)) a.text("quantization", component.quantization);
  a.objects("programs", component.programs);
}

template <class Archive>
static void describe(Archive& a, ManifestTensor::Source& source) {
  a.file_name("file", source.file);
  a.text("key", source.key);
  a.digest("sha256", source.sha256);
}

template <class Archive>
static void describe(Archive& a, ManifestTensor& tensor) {
  a.text("name", tensor.name);
  if (a.since(5)) a.choice("output", tensor.output, {"", "scales"});
  a.file_name("file", tensor.file);
  a.dtype("dtype", tensor.dtype);
  a.shape("shape", tensor.shape);
  a.count("offset", tensor.offset);
  a.count("bytes", tensor.bytes);
  a.digest("sha256", tensor.sha256);
  a.boolean("rounded", tensor.rounded);
  a.text("rule", tensor.rule);
  a.objects("sources", tensor.sources);
  if (a.since(3)) a.line("recipe", tensor.recipe, kMaxRecipeBytes);
}

template <class Archive>
static void describe(Archive& a, ManifestSourceFile& file) {
  a.file_name("path", file.path);
  a.count("bytes", file.bytes);
  a.digest("sha256_tree", file.sha256_tree);
}

template <class Archive>
static void describe(Archive& a, ManifestAdapter& adapter) {
  a.text("name", adapter.name);
  a.file_name("file", adapter.file);
  a.objects("files", adapter.source_files);
}

template <class Archive>
static void describe(Archive& a, ManifestFile& file) {
  a.file_name("path", file.path);
  a.count("bytes", file.bytes);
  a.choice("method", file.method, {kPlainDigest, kSegmentsDigest});
  a.digest("digest", file.digest);
  if (a.since(7)) a.digest("xxh3", file.xxh3, kZeroFastDigest.size());
}

template <class Archive>
static void describe(Archive& a, ManifestDrop& drop) {
  a.text("key", drop.key);
  a.text("rule", drop.rule);
  a.text("reason", drop.reason);
}

template <class Archive>
static void describe(Archive& a, ManifestOption& option) {
  a.text("name", option.name);
  a.text("value", option.value);
}

template <class Archive>
static void describe(Archive& a, ManifestClassifier& classifier) {
  a.choice("scores", classifier.scores, {"softmax", "sigmoid", "none"});
  a.texts("labels", classifier.labels);
}

template <class Archive>
static void describe(Archive& a, ImageGrid& grid) {
  a.count("patch_size", grid.patch_size);
  a.count("temporal_patch_size", grid.temporal_patch_size);
  a.count("merge_size", grid.merge_size);
  a.count("window_size", grid.window_size);
  a.count("table_size", grid.table_size);
}

template <class Archive>
static void describe(Archive& a, PatchList& list) {
  a.count("patch_size", list.patch_size);
  a.count("merge_size", list.merge_size);
}

template <class Archive>
static void describe(Archive& a, ManifestImageTiles& tiles) {
  a.counts("resolutions", tiles.resolutions);
  a.count("most_tiles", tiles.most_tiles);
}

template <class Archive>
static void describe(Archive& a, AttentionSink& sink) {
  a.count("sink", sink.sink);
  a.count("window", sink.window);
}

template <class Archive>
static void describe_model(Archive& a, Manifest& m) {
  a.text("model_type", m.model_type);
  a.count("vocab_size", m.vocab_size);
  a.count("hidden_size", m.hidden_size);
  a.count("num_layers", m.num_layers);
  a.count("context_length", m.context_length);
  a.count("prefill_length", m.prefill_length);
  a.boolean("all_logits", m.all_logits);
  a.choice("program_style", m.program_style, {"stateful", "static", "encoder"});
  if (a.since(3)) {
    a.choice("attention", m.attention, {"mha", "sha"});
    a.choice("softmax", m.softmax, {"plain", "masked"});
    a.choice("rotate", m.rotate, {"none", "r3"});
  }
  a.text("weight_dtype", m.weight_dtype);
  a.optional_count("bos_id", m.bos_id);
  a.counts("eos_ids", m.eos_ids);
  if (a.since(4)) a.optional_count("image_token_id", m.image_token_id);
  a.optional_count("rope_switch", m.rope_switch);
  if (a.since(10)) a.optional_object("classifier", m.classifier);
  if (a.since(11)) a.optional_object("image_grid", m.image_grid);
  if (a.since(12)) a.boolean("two_way_prompts", m.two_way_prompts);
  if (a.since(13)) a.optional_object("image_tiles", m.image_tiles);
  if (a.since(14)) a.optional_count("decoder_start_id", m.decoder_start_id);
  if (a.since(15)) a.optional_object("patch_list", m.patch_list);
  if (a.since(17)) a.optional_count("audio_token_id", m.audio_token_id);
  if (a.since(18)) a.optional_count("audio_row_frames", m.audio_row_frames);
  if (a.since(19)) a.optional_count("audio_rows", m.audio_rows);
  if (a.since(20)) a.optional_object("attention_sink", m.attention_sink);
  if (a.since(21)) {
    a.optional_count("video_token_id", m.video_token_id);
    a.optional_count("tokens_per_second", m.tokens_per_second);
  }
  if (a.since(22)) a.optional_count("audio_block_rows", m.audio_block_rows);
  if (a.since(23)) a.optional_count("audio_causal_frames", m.audio_causal_frames);
  if (a.since(3)) a.count("parts_in_program", m.parts_in_program);
}

template <class Archive>
static void describe(Archive& a, Manifest& m, std::string& self_digest) {
  std::string format(kFormatName);
  a.text("format", format);
  a.count("version", m.version);
  if (a.since(6)) {
    a.group("tool", [&](Archive& inner) {
      inner.text("name", m.tool.name);
      inner.text("version", m.tool.version);
    });
  }
  a.group("model", [&](Archive& inner) { describe_model(inner, m); });
  a.group("source", [&](Archive& inner) {
    inner.objects("files", m.source_files);
    inner.objects("dropped", m.dropped);
    inner.texts("allowed_unmapped", m.allowed_unmapped);
    inner.choice("packed_layout", m.packed_layout, {"own", "concatenated", "interleaved"});
  });
  if (a.since(6)) a.objects("options", m.options);
  a.objects("components", m.components);
  a.objects("tensors", m.tensors);
  if (a.since(8)) {
    a.optional_file_name("no_adapter", m.no_adapter);
    a.objects("adapters", m.adapters);
  }
  a.objects("files", m.files);
  a.optional_file_name("reference", m.reference);
  a.real("default_tolerance", m.default_tolerance);
  a.digest(kSelfDigest, self_digest);
}

namespace {

// Returns the position of the self digest. It is the last member, so its digits end before the last
// three characters of the text (quote, line end, brace) and the closing line end.
size_t self_digest_position(std::string_view text) {
  constexpr std::string_view kEnd = "\"\n}\n";
  if (text.size() < kEnd.size() + kZeroDigest.size() || !text.ends_with(kEnd)) return 0;
  return text.size() - kEnd.size() - kZeroDigest.size();
}

std::string digest_with_zeros(std::string text, size_t position) {
  text.replace(position, kZeroDigest.size(), kZeroDigest);
  return to_hex(sha256(std::as_bytes(std::span<const char>(text))));
}

std::string canonical_text(Manifest& manifest, std::string self_digest) {
  ManifestWriter writer(manifest.version);
  return writer.document([&] { describe(writer, manifest, self_digest); });
}

// Reads the version first, because it decides which members the text has.
Result<int64_t> read_version(const nlohmann::json& json, const std::string& name) {
  const auto member = [&](const char* key) -> const nlohmann::json* {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found == json.end() ? nullptr : &*found;
  };
  const nlohmann::json* format = member("format");
  if (format == nullptr || *format != kFormatName) {
    return bad_input(fmt::format("{}: not the manifest of a bundle", name));
  }
  const nlohmann::json* version = member("version");
  const auto* number = version == nullptr ? nullptr : version->get_ptr<const uint64_t*>();
  if (number == nullptr) return bad_input(fmt::format("{}: version is not an integer", name));
  if (*number < kOldestManifestVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: written by an older Ferry (bundle format version {}); convert the "
                            "checkpoint again",
                            name, *number));
  }
  if (*number > kManifestVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: bundle format version {}, this program reads versions up to {}",
                            name, *number, kManifestVersion));
  }
  return static_cast<int64_t>(*number);
}

}  // namespace

std::optional<int64_t> call_length(const ManifestMethod& method) {
  for (const ManifestPort& port : method.inputs) {
    if (port.name == kTokensPort && port.shape.size() == 2) return port.shape[1];
    if (port.name == kEmbeddingsPort && port.shape.size() == 3) return port.shape[1];
  }
  return std::nullopt;
}

const ManifestMethod* ManifestProgram::find(std::string_view method) const {
  const auto found = std::ranges::find(methods, method, &ManifestMethod::name);
  return found == methods.end() ? nullptr : &*found;
}

const ManifestComponent* Manifest::find(std::string_view role) const {
  const auto found = std::ranges::find(components, role, &ManifestComponent::role);
  return found == components.end() ? nullptr : &*found;
}

const ManifestComponent* Manifest::main() const {
  for (const std::string_view role : {kTextDecoderRole, kTextEncoderRole, kAudioEncoderRole}) {
    if (const ManifestComponent* component = find(role)) return component;
  }
  return nullptr;
}

const ManifestAdapter* Manifest::find_adapter(std::string_view name) const {
  const auto found = std::ranges::find(adapters, name, &ManifestAdapter::name);
  return found == adapters.end() ? nullptr : &*found;
}

std::vector<const ManifestProgram*> Manifest::programs() const {
  std::vector<const ManifestProgram*> all;
  for (const ManifestComponent& component : components) {
    for (const ManifestProgram& program : component.programs) all.push_back(&program);
  }
  return all;
}

bool is_adapter_name(std::string_view text) {
  constexpr size_t kMostBytes = 64;
  return !text.empty() && text.size() <= kMostBytes && text.front() != '.' &&
         std::ranges::all_of(text, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

std::string adapter_file(std::string_view name) { return fmt::format("adapter-{}.ptd", name); }

std::string write_manifest(const Manifest& manifest) {
  Manifest copy = manifest;  // one description serves both directions and so takes references
  std::string text = canonical_text(copy, std::string(kZeroDigest));
  const size_t position = self_digest_position(text);
  text.replace(position, kZeroDigest.size(), digest_with_zeros(text, position));
  return text;
}

Result<Manifest> read_manifest(const std::string& text, const std::string& name) {
  if (text.size() > kMaxManifestBytes) {
    return bad_input(fmt::format("{}: {} bytes, a manifest has at most {}", name, text.size(),
                                 kMaxManifestBytes));
  }
  const nlohmann::json json = FERRY_TRY(parse_json(text, name));
  const int64_t version = FERRY_TRY(read_version(json, name));
  Manifest manifest;
  std::string error;
  std::string self_digest;
  ManifestReader reader(json, version, error);
  describe(reader, manifest, self_digest);
  reader.finish();
  if (!error.empty()) return bad_input(fmt::format("{}: {}", name, error));

  const size_t position = self_digest_position(text);
  if (position == 0 || digest_with_zeros(text, position) != self_digest) {
    return bad_input(fmt::format(
        "{}: does not have the SHA-256 that it states in {}: it was changed", name, kSelfDigest));
  }
  const std::string canonical = canonical_text(manifest, self_digest);
  if (canonical != text) {
    const auto differ = std::mismatch(text.begin(), text.end(), canonical.begin(), canonical.end());
    return bad_input(
        fmt::format("{}: not in canonical form (offset {})", name, differ.first - text.begin()));
  }
  return manifest;
}

std::vector<const RowEncoder*> row_encoders(const Manifest& manifest) {
  std::vector<const RowEncoder*> found;
  for (const RowEncoder* rows : {&kPictureRows, &kSoundRows}) {
    if (row_encoder(manifest, rows->role) != nullptr) found.push_back(rows);
  }
  return found;
}

const RowEncoder* row_encoder(const Manifest& manifest, std::string_view role) {
  if (manifest.find(kTokenEmbeddingRole) == nullptr || manifest.find(role) == nullptr) {
    return nullptr;
  }
  if (role == kVisionEncoderRole) return &kPictureRows;
  return role == kAudioEncoderRole ? &kSoundRows : nullptr;
}

}  // namespace ferry::packer
