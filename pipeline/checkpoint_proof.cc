#include "pipeline/checkpoint_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "converters/assemble.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "pipeline/calibration.h"
#include "pipeline/convert.h"
#include "pipeline/f32_path.h"
#include "proof/probing.h"
#include "proof/rounding_proof.h"
#include "proof/verify.h"
#include "runner/decoder.h"

namespace ferry::pipeline {
namespace {

// Which buffers the programs have contents of.
graph::BufferInit buffer_mode(const packer::Manifest& manifest) {
  size_t stored = 0, buffers = 0;
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      for (const packer::ManifestBuffer& buffer : method.buffers) {
        buffers += 1;
        stored += buffer.init == "stored" ? 1 : 0;
      }
    }
  }
  if (stored == 0) return graph::BufferInit::kNone;
  return stored == buffers ? graph::BufferInit::kAll : graph::BufferInit::kState;
}

// The ports of a method that all programs of the text decoder have, by name.
std::map<std::string, packer::ManifestPort> ports_of(const packer::Manifest& manifest,
                                                     std::string_view method) {
  std::map<std::string, packer::ManifestPort> ports;
  for (const packer::ManifestProgram& program : manifest.find(kTextDecoderRole)->programs) {
    const packer::ManifestMethod* stated = program.find(method);
    if (stated == nullptr) continue;
    for (const packer::ManifestPort& port : stated->inputs) ports.emplace(port.name, port);
    for (const packer::ManifestPort& port : stated->outputs) ports.emplace(port.name, port);
  }
  return ports;
}

using Ports = std::map<std::string, packer::ManifestPort>;

// The encodings of the caches of a method, in the order of layers.
void set_encodings(const Ports& ports, int64_t num_layers, std::vector<Encoding>& keys,
                   std::vector<Encoding>& values) {
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const auto key = ports.find(fmt::format("{}{}", kKCachePort, layer));
    const auto value = ports.find(fmt::format("{}{}", kVCachePort, layer));
    if (key == ports.end() || value == ports.end()) continue;
    if (key->second.encoding) keys.push_back(*key->second.encoding);
    if (value->second.encoding) values.push_back(*value->second.encoding);
  }
}

// What the ports of a static program say about the options that it was made with.
void set_static_options(const packer::Manifest& manifest, ConvertOptions& options) {
  options.style = converters::ProgramStyle::kStatic;
  options.single_head_attention = manifest.attention == "sha";
  if (manifest.softmax == "masked") options.softmax = converters::SoftmaxStyle::kMasked;
  if (manifest.rotate == "r3") options.rotation = converters::Rotation::kR3;
  if (manifest.parts_in_program > 1) {
    options.shards_in_one_file = true;
    options.shards = static_cast<int32_t>(std::min<int64_t>(manifest.parts_in_program, INT32_MAX));
  }
  const Ports ports = ports_of(manifest, kKvForwardMethod);
  const auto find = [&](std::string_view name) -> const packer::ManifestPort* {
    const auto found = ports.find(std::string(name));
    return found == ports.end() ? nullptr : &found->second;
  };
  if (const auto* input = find(kInputPosPort); input != nullptr && input->shape.size() == 2) {
    options.decode_length = input->shape[1];
  }
  if (const auto* mask = find(kAttentionMaskPort)) options.ports.mask = mask->dtype;
  if (const auto* logits = find(kLogitsPort)) {
    options.ports.logits = logits->dtype;
    options.ports.logits_encoding = logits->encoding.value_or(Encoding{});
  }
  for (int64_t layer = 0; layer < manifest.num_layers; ++layer) {
    if (const auto* keys = find(fmt::format("{}{}", kKCachePort, layer))) {
      options.ports.cache = keys->dtype;
    }
  }
  converters::PortTypes& types = options.ports;
  set_encodings(ports, manifest.num_layers, types.keys, types.values);
  set_encodings(ports_of(manifest, kPrefillForwardMethod), manifest.num_layers, types.prefill_keys,
                types.prefill_values);
  if (types.prefill_keys == types.keys && types.prefill_values == types.values) {
    types.prefill_keys.clear();
    types.prefill_values.clear();
  }
}

// The options that the bundle was made with, as far as they decide programs.
ConvertOptions options_of(const packer::Bundle& bundle, const std::string& source,
                          const std::string& config) {
  const packer::Manifest& manifest = bundle.manifest();
  ConvertOptions options;
  options.source = source;
  options.config = config;
  options.shards = static_cast<int32_t>(bundle.programs_of(kTextDecoderRole).size());
  options.context_length = manifest.context_length;
  options.prefill_length = manifest.prefill_length;
  options.all_logits = manifest.all_logits;
  options.allow_unmapped = manifest.allowed_unmapped;
  options.packed_layout = converters::packed_layout_of(manifest.packed_layout);
  options.buffers.mode = buffer_mode(manifest);
  if (manifest.program_style == kStaticStyle) set_static_options(manifest, options);
  return options;
}

// A checkpoint whose keys do not fit, or that holds another model, is an error.
Result<Conversion> plan_for(const packer::Bundle& bundle, const ConvertOptions& options) {
  const packer::Manifest& manifest = bundle.manifest();
  const std::string& source = options.source;
  Conversion conversion = FERRY_TRY(plan_conversion(options));
  if (!conversion.problems.empty()) {
    return tl::unexpected<Error>(
        converters::problems_error(conversion.problems, *conversion.source));
  }
  if (conversion.config.model_type != manifest.model_type ||
      conversion.config.vocab_size != manifest.vocab_size ||
      conversion.config.hidden_size != manifest.hidden_size ||
      conversion.config.num_layers != manifest.num_layers) {
    return bad_input(fmt::format(
        "{}: is another model than the bundle's: {} with {} layers, hidden {}, vocabulary {}; the "
        "bundle is {} with {}, {}, {}",
        source, quoted(conversion.config.model_type), conversion.config.num_layers,
        conversion.config.hidden_size, conversion.config.vocab_size, quoted(manifest.model_type),
        manifest.num_layers, manifest.hidden_size, manifest.vocab_size));
  }
  return conversion;
}

// Whether the plan stores every tensor in the dtype that the bundle has it in.
bool same_dtypes(const Conversion& conversion, const packer::Manifest& manifest) {
  std::map<std::string, DType> planned;
  for (const packer::ManifestTensor& tensor : conversion.plan->manifest().tensors) {
    planned[tensor.name] = tensor.dtype;
  }
  return std::ranges::all_of(manifest.tensors, [&](const packer::ManifestTensor& tensor) {
    const auto found = planned.find(tensor.name);
    return found == planned.end() || found->second == tensor.dtype;
  });
}

// The conversion that the bundle should be the result of. `--dtype keep` and a dtype by name give
// the same for most checkpoints; the one that fits the bundle is taken.
Result<Conversion> plan_again(const packer::Bundle& bundle, ConvertOptions options) {
  options.dtype = graph::WeightDType::kKeep;
  Conversion kept = FERRY_TRY(plan_for(bundle, options));
  if (same_dtypes(kept, bundle.manifest())) return kept;
  const auto named = [](const std::string& dtype) {
    return dtype == "f16"    ? graph::WeightDType::kF16
           : dtype == "bf16" ? graph::WeightDType::kBF16
                             : graph::WeightDType::kF32;
  };
  options.dtype = named(bundle.manifest().weight_dtype);
  for (const packer::ManifestComponent& component : bundle.manifest().components) {
    if (component.weight_dtype.empty()) continue;
    options.component_dtypes[component.role] = component.weight_dtype == "mixed"
                                                   ? graph::WeightDType::kKeep
                                                   : named(component.weight_dtype);
  }
  return plan_for(bundle, options);
}

// "'a.weight' and 2 more", the source keys of a weight.
std::string keys_of(const graph::Recipe& recipe, const TensorSource& source) {
  const std::vector<size_t> entries = entries_of(recipe);
  if (entries.empty()) return "no source";
  std::string text = quoted(source.entries()[entries[0]].name);
  if (entries.size() > 1) text += fmt::format(" and {} more", entries.size() - 1);
  return text;
}

// The first byte that differs from an output of the recipe, if any.
Result<std::optional<uint64_t>> first_difference(const graph::Recipe& recipe, size_t output,
                                                 const TensorSource& source,
                                                 std::span<const std::byte> stored) {
  const uint64_t tile_size = static_cast<uint64_t>(tile_rows(recipe)) * row_bytes(recipe, output);
  std::vector<std::byte> tile(std::min<uint64_t>(tile_size, stored.size()));
  for (uint64_t at = 0; at < stored.size(); at += tile_size) {
    const std::span<const std::byte> have =
        stored.subspan(at, std::min<uint64_t>(tile_size, stored.size() - at));
    const std::span<std::byte> want = std::span(tile).first(have.size());
    FERRY_RETURN_IF_ERROR(graph::materialize(recipe, source, output, at, want));
    const auto differs = std::ranges::mismatch(have, want).in1;
    if (differs != have.end()) return at + static_cast<uint64_t>(differs - have.begin());
  }
  return std::nullopt;
}

using WeightMap = std::map<std::string, graph::WeightOutput>;  // by the key of each output

// Empty where `tensor` is exactly what the source gives.
Result<std::string> compare_tensor(const packer::ManifestTensor& tensor,
                                   const packer::Bundle& bundle, const WeightMap& weights,
                                   const TensorSource& source) {
  const auto found = weights.find(tensor.name);
  if (found == weights.end()) {
    return fmt::format("{}: the checkpoint's model has no such weight", quoted(tensor.name));
  }
  const auto [weight, output] = found->second;
  graph::Recipe recipe = weight->recipe;
  if (!recipe.is_coded()) recipe.cast(tensor.dtype);
  const std::string keys = keys_of(recipe, source);
  const graph::RecipeOutput& made = recipe.outputs[output];
  if (made.dtype != tensor.dtype || made.shape != tensor.shape || made.bytes() != tensor.bytes) {
    return fmt::format("{}: {} {} in the bundle, {} {} from {}", quoted(tensor.name),
                       dtype_name(tensor.dtype), to_string(tensor.shape), dtype_name(made.dtype),
                       to_string(made.shape), keys);
  }
  const std::span<const std::byte> file = bundle.data().at(tensor.file).file.bytes();
  const auto at = FERRY_TRY(
      first_difference(recipe, output, source, file.subspan(tensor.offset, tensor.bytes)));
  if (!at) return std::string();
  return fmt::format("{}: differs from {} at byte {} of {}", quoted(tensor.name), keys, *at,
                     tensor.bytes);
}

Result<TensorProof> compare_tensors(ThreadPool& pool, const packer::Bundle& bundle,
                                    const Conversion& conversion) {
  const std::vector<packer::ManifestTensor>& tensors = bundle.manifest().tensors;
  WeightMap weights;
  for (const ConvertedComponent& component : conversion.components) {
    for (const graph::Model& part : component.parts) {
      for (const graph::Weight& weight : part.weights.weights()) {
        for (size_t i = 0; i < weight.recipe.outputs.size(); ++i) {
          weights.emplace(graph::key_of(weight, i), graph::WeightOutput{&weight, i});
        }
      }
    }
  }
  std::vector<Result<std::string>> results(tensors.size(), std::string());
  pool.parallel_for(tensors.size(), [&](size_t i) {
    results[i] = compare_tensor(tensors[i], bundle, weights, *conversion.source);
  });
  TensorProof proof;
  std::set<std::string> stored;
  std::set<std::pair<std::string, uint64_t>> segments;  // tied weights share one
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::string line = FERRY_TRY(std::move(results[i]));
    if (!line.empty()) proof.different.push_back(std::move(line));
    proof.tensors += 1;
    const bool fresh = segments.emplace(tensors[i].file, tensors[i].offset).second;
    proof.bytes += fresh ? tensors[i].bytes : 0;
    stored.insert(tensors[i].name);
  }
  for (const auto& [name, made] : weights) {
    if (stored.contains(name)) continue;
    proof.different.push_back(fmt::format("{}: made by {}, but not in the bundle", quoted(name),
                                          keys_of(made.weight->recipe, *conversion.source)));
  }
  FERRY_RETURN_IF_ERROR(conversion.source->check_unchanged());
  return proof;
}

std::string text_of(const Encoding& encoding) {
  return fmt::format("scale {} and zero point {}", encoding.scale, encoding.zero_point);
}

// Empty where they are equal.
std::string encoding_difference(const std::string& what, const std::vector<Encoding>& have,
                                const std::vector<Encoding>& want,
                                const char* option = "--calibrate") {
  const auto [ours, theirs] = std::ranges::mismatch(have, want);
  if (ours == have.end() && theirs == want.end()) return {};
  if (ours == have.end() || theirs == want.end()) {
    return fmt::format("{}: {} encodings, calibration gives {}", what, have.size(), want.size());
  }
  return fmt::format(
      "{}, number {}: {}; calibration gives {}; a bundle made with {} needs the same file here",
      what, ours - have.begin(), text_of(*ours), text_of(*theirs), option);
}

// A line for each kind of encoding that calibration does not give. Programs are made again with the
// encodings that the bundle states, so only this tells whether those are right.
Result<std::vector<std::string>> compare_encodings(const ConvertOptions& stated,
                                                   const CheckpointOptions& given,
                                                   ThreadPool& pool) {
  ConvertOptions options = stated;
  const auto prompts_in = [](const std::string& file) {
    return file.empty() ? Result<Prompts>(Prompts{}) : read_prompts(file);
  };
  const Prompts prompts = FERRY_TRY(prompts_in(given.calibrate));
  const Prompts prefill_prompts = FERRY_TRY(prompts_in(given.calibrate_prefill));
  FERRY_RETURN_IF_ERROR(calibrate(options, prompts, pool));
  if (stated.ports.has_prefill_encodings() || !given.calibrate_prefill.empty()) {
    FERRY_RETURN_IF_ERROR(calibrate_prefill(options, prefill_prompts, pool));
  }
  const converters::PortTypes &have = stated.ports, &want = options.ports;
  const converters::PortTypes prefill = have.of_prefill(), prefill_want = want.of_prefill();
  std::vector<std::string> lines = {
      encoding_difference("encodings of keys", have.keys, want.keys),
      encoding_difference("encodings of values", have.values, want.values)};
  if (have.has_prefill_encodings() || want.has_prefill_encodings()) {
    constexpr const char* kOption = "--calibrate-prefill";
    lines.push_back(encoding_difference("encodings of keys of prefill_forward", prefill.keys,
                                        prefill_want.keys, kOption));
    lines.push_back(encoding_difference("encodings of values of prefill_forward", prefill.values,
                                        prefill_want.values, kOption));
  }
  if (is_encoded(have.logits)) {
    lines.push_back(
        encoding_difference("encoding of logits", {have.logits_encoding}, {want.logits_encoding}));
  }
  std::erase(lines, "");
  return lines;
}

Result<F32Outputs> compute_f32_path(ThreadPool& pool, ConvertOptions options,
                                    const packer::Bundle& bundle,
                                    const std::vector<proof::RecordedPrompt>& prompts,
                                    const std::string& name) {
  size_t longest = 1;
  for (const proof::RecordedPrompt& prompt : prompts) {
    longest = std::max(longest, prompt.tokens.size() + prompt.continuation.size());
  }
  // The caches inside and plain attention, whatever the style of the bundle is.
  options.style = converters::ProgramStyle::kStateful;
  options.decode_length = {};
  options.shards_in_one_file = false;
  options.ports = {};
  options.single_head_attention = false;
  options.softmax = converters::SoftmaxStyle::kPlain;
  options.rotation = converters::Rotation::kNone;
  options.dtype = graph::WeightDType::kF32;
  options.component_dtypes = {};
  options.shards = static_cast<int32_t>(bundle.manifest().num_layers);
  options.all_logits = true;
  options.prefill_length =
      std::min(static_cast<int64_t>(longest), bundle.manifest().context_length);
  options.buffers = {};
  const Conversion conversion = FERRY_TRY(plan_for(bundle, options));
  return run_f32_path(conversion, prompts, name, pool);
}

// The bundle's own features, for its own continuation.
Status encode_prompts(runner::VisionEncoder* vision, std::vector<proof::RecordedPrompt>& prompts) {
  for (proof::RecordedPrompt& prompt : prompts) {
    if (vision == nullptr || prompt.images.pixels.empty()) continue;
    prompt.images.features = FERRY_TRY(vision->encode(prompt.images.pixels));
  }
  return {};
}

// The first tensor of the f32 path with a value that is NaN or infinite; empty if there is none.
Result<std::string> not_finite(const TensorSource& path) {
  for (size_t i = 0; i < path.entries().size(); ++i) {
    const TensorEntry& entry = path.entries()[i];
    if (entry.dtype != DType::kF32) continue;
    std::vector<float> values(entry.bytes / sizeof(float));
    FERRY_RETURN_IF_ERROR(path.read(i, 0, std::as_writable_bytes(std::span(values))));
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) return entry.name;
  }
  return std::string();
}

}  // namespace

Result<CheckpointProof> prove_against_checkpoint(const packer::Bundle& bundle,
                                                 const CheckpointOptions& given,
                                                 const proof::Reference* reference,
                                                 ThreadPool& pool) {
  const packer::Manifest& manifest = bundle.manifest();
  const ConvertOptions options = options_of(bundle, given.source, given.config);
  if (!given.calibrate_prefill.empty() && !is_encoded(options.ports.cache)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: --calibrate-prefill: no cache is u8 or u16",
                                               printable(bundle.path())));
  }
  CheckpointProof proof;
  {
    const Conversion conversion = FERRY_TRY(plan_again(bundle, options));
    proof.tensors = FERRY_TRY(compare_tensors(pool, bundle, conversion));
    proof.programs = compare_programs(bundle, *conversion.plan);
  }
  if (is_encoded(options.ports.cache) || is_encoded(options.ports.logits)) {
    proof.encodings = FERRY_TRY(compare_encodings(options, given, pool));
  } else if (!given.calibrate.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: --calibrate: no cache or logits are u8 or u16",
                                               printable(bundle.path())));
  }
  const std::unique_ptr<runner::Decoder> decoder =
      FERRY_TRY(runner::load_decoder(bundle, pool, {.memory = given.memory}, given.decode));
  const std::unique_ptr<runner::VisionEncoder> vision =
      FERRY_TRY(runner::VisionEncoder::load_if_any(bundle, pool, {.memory = given.memory}));
  std::vector<proof::RecordedPrompt> prompts;
  if (reference != nullptr) {
    prompts = FERRY_TRY(proof::prompts_of(*reference, manifest));
  } else {
    // The bundle's own greedy continuation: the f32 path is asked what it thinks of it.
    prompts = proof::probing_prompts(manifest.vocab_size, decoder->capacity());
    proof::add_probing_image(manifest, decoder->capacity(), prompts);
    FERRY_RETURN_IF_ERROR(encode_prompts(vision.get(), prompts));
    FERRY_RETURN_IF_ERROR(
        proof::continue_prompts(*decoder, manifest, decoder->capacity(), prompts));
  }
  const std::string name = given.source + " in f32";
  const F32Outputs path = FERRY_TRY(compute_f32_path(pool, options, bundle, prompts, name));
  if (const std::string tensor = FERRY_TRY(not_finite(*path.one_call)); !tensor.empty()) {
    proof.problem =
        fmt::format("{}: computes values that are not finite (tensor {})", name, quoted(tensor));
    return proof;
  }
  const proof::Reference recorded = FERRY_TRY(proof::Reference::open(*path.one_call));
  if (reference != nullptr) {
    const proof::ParityBounds bounds = proof::f32_bounds(bundle);
    proof.f32_path = FERRY_TRY(proof::compare_references(recorded, *reference, bounds));
    // The several calls are reported where only they are wrong.
    const proof::Reference again = FERRY_TRY(proof::Reference::open(*path.several_calls));
    proof::ParityReport several = FERRY_TRY(proof::compare_references(again, *reference, bounds));
    if (proof.f32_path->parity && !several.parity) proof.f32_path = std::move(several);
  }
  proof.outputs =
      FERRY_TRY(proof::verify(*decoder, manifest, recorded,
                              proof::bounds_of(bundle, given.tolerance), {.vision = vision.get()}));
  return proof;
}

}  // namespace ferry::pipeline
