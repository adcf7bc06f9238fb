#include "plan/bundle_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/checkpoint_input.h"
#include "converters/assemble.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "graph/recipe.h"
#include "packer/coding.h"
#include "plan/options.h"

namespace ferry::plan {
namespace {

// Returns which buffers have stored contents in the programs of the bundle.
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

// Returns the inputs or outputs that method `method` has in any program of the text decoder, by
// name.
std::map<std::string, packer::ManifestPort> ports_of(const packer::Manifest& manifest,
                                                     std::string_view method) {
  std::map<std::string, packer::ManifestPort> ports;
  for (const packer::ManifestProgram& program : manifest.main()->programs) {
    const packer::ManifestMethod* stated = program.find(method);
    if (stated == nullptr) continue;
    for (const packer::ManifestPort& port : stated->inputs) ports.emplace(port.name, port);
    for (const packer::ManifestPort& port : stated->outputs) ports.emplace(port.name, port);
  }
  return ports;
}

using Ports = std::map<std::string, packer::ManifestPort>;

// Appends the encodings of the caches of a method, in the order of layers.
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

// Sets the encodings of the quantised inputs and outputs of a static program.
void set_encodings(const packer::Manifest& manifest, converters::PortTypes& types) {
  const Ports ports = ports_of(manifest, kKvForwardMethod);
  if (const auto logits = ports.find(std::string(kLogitsPort)); logits != ports.end()) {
    types.logits_encoding = logits->second.encoding.value_or(Encoding{});
  }
  set_encodings(ports, manifest.num_layers, types.keys, types.values);
  set_encodings(ports_of(manifest, kPrefillForwardMethod), manifest.num_layers, types.prefill_keys,
                types.prefill_values);
  if (types.prefill_keys == types.keys && types.prefill_values == types.values) {
    types.prefill_keys.clear();
    types.prefill_values.clear();
  }
}

// Sets the options of a static program that can be seen in its inputs and outputs.
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
  if (const auto* logits = find(kLogitsPort)) options.ports.logits = logits->dtype;
  for (int64_t layer = 0; layer < manifest.num_layers; ++layer) {
    if (const auto* keys = find(fmt::format("{}{}", kKCachePort, layer))) {
      options.ports.cache = keys->dtype;
    }
  }
}

// Returns the dtype of the KV caches in a stateful program.
DType kv_cache_of(const packer::Manifest& manifest) {
  if (manifest.program_style != kStatefulStyle) return DType::kF32;
  for (const packer::ManifestProgram& program : manifest.main()->programs) {
    for (const packer::ManifestMethod& method : program.methods) {
      for (const packer::ManifestBuffer& buffer : method.buffers) {
        if (buffer.name.ends_with("kv_cache.k_cache")) return buffer.dtype;
      }
    }
  }
  return DType::kF32;
}

// Whether the plan stores every tensor in the dtype that the tensor has in the bundle.
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

// The coding in the last step of a recipe.
struct StatedCoding {
  bool split = false;  // whether the codes and scales come from q8_0 blocks
  graph::QuantizationScheme scheme = {};
};

std::optional<StatedCoding> coding_in(std::string_view recipe) {
  if (recipe.ends_with(" | split q8_0")) return StatedCoding{.split = true};
  const auto scheme = graph::scheme_in(recipe);
  return scheme ? std::optional(StatedCoding{.scheme = *scheme}) : std::nullopt;
}

graph::LinearQuantization linear_of(const packer::ManifestTensor& tensor,
                                    const StatedCoding& coding, bool is_tensor) {
  using Kind = graph::LinearQuantization::Kind;
  if (tensor.dtype == DType::kI4) return {Kind::k8da4w, coding.scheme.group};
  // Programs read the matrices of experts as tensors with every quantisation, so `is_tensor` says
  // nothing about these.
  const bool table = tensor.name.find(".experts.") != tensor.name.npos;
  return {coding.split || (is_tensor && !table) ? Kind::kInt8 : Kind::k8da8w};
}

// Reads a quantisation rule for each linear weight from the recipes in the manifest, so that the
// same weights are quantised in the same way. Recipes that state no coding give no rule, and their
// weights then differ from those of the bundle.
graph::QuantizeOptions quantize_options_of(const packer::Bundle& bundle) {
  graph::QuantizeOptions options;
  const std::set<std::string> tensors = packer::tensor_keys(bundle);
  for (const packer::ManifestTensor& tensor : bundle.manifest().tensors) {
    const std::optional<StatedCoding> coding = coding_in(tensor.recipe);
    if (!tensor.output.empty() || !coding) continue;
    if (coding->scheme.method == graph::ScaleMethod::kHqq) options.method = coding->scheme.method;
    if (packer::is_embedding_table(tensor.name)) {
      options.embeddings = {tensor.dtype == DType::kI4 ? 4 : 8, coding->scheme.group};
      continue;
    }
    options.rules.push_back(
        {tensor.name, linear_of(tensor, *coding, tensors.contains(tensor.name))});
  }
  return options;
}

// Sets the options that are not recorded in bundles before version 6 of the format, from the
// programs and the recipes of the weights.
void set_unrecorded_options(const packer::Bundle& bundle, ConvertOptions& options) {
  const packer::Manifest& manifest = bundle.manifest();
  const bool is_encoder = manifest.program_style == kEncoderStyle;
  options.shards = static_cast<int32_t>(bundle.programs_of(manifest.main()->role).size());
  options.context_length = manifest.context_length;
  options.prefill_length = manifest.prefill_length;
  if (is_encoder) options.style = converters::ProgramStyle::kEncoder;
  options.all_logits = manifest.all_logits;
  options.allow_unmapped = manifest.allowed_unmapped;
  options.packed_layout = converters::packed_layout_of(manifest.packed_layout);
  options.buffers.mode = buffer_mode(manifest);
  options.quantize = quantize_options_of(bundle);
  options.kv_cache = kv_cache_of(manifest);
  if (manifest.program_style == kStaticStyle) set_static_options(manifest, options);
}

}  // namespace

graph::FactorSlots factors_of(const packer::Bundle& bundle) {
  graph::FactorSlots factors;
  const packer::Manifest& manifest = bundle.manifest();
  if (manifest.no_adapter.empty()) return factors;
  const ptd::DataFile& without = bundle.data().at(manifest.no_adapter).content;
  for (const ptd::NamedTensor& tensor : without.tensors) {
    const auto slot = graph::slot_of_scale(tensor.key);
    if (!slot) continue;
    factors.slots.push_back(*slot);
    const graph::FactorNames names = graph::factor_names(*slot);
    factors.slots.back().has_gain =
        std::ranges::count(without.tensors, names.gain, &ptd::NamedTensor::key) > 0;
    const auto found = std::ranges::find(without.tensors, names.a, &ptd::NamedTensor::key);
    if (found == without.tensors.end() || found->sizes.size() != 2) continue;
    factors.slots.back().rank = found->sizes[slot->is_table ? 1 : 0];
    factors.dtype = found->dtype;
  }
  const packer::ManifestAdapter* chosen = manifest.find_adapter(bundle.adapter());
  if (chosen == nullptr) return factors;
  const packer::BundleData& data = bundle.data().at(chosen->file);
  for (const ptd::NamedTensor& tensor : data.content.tensors) {
    const ptd::Segment& segment = data.content.segments[tensor.segment];
    factors.contents[tensor.key] = data.file.bytes().subspan(segment.offset, segment.size);
  }
  return factors;
}

Result<ConvertOptions> options_of(const packer::Bundle& bundle, const BundleSource& source) {
  const packer::Manifest& manifest = bundle.manifest();
  ConvertOptions options;
  options.source = source.path;
  options.config = source.config;
  options.lora = source.lora;
  options.mmproj = source.mmproj;
  if (manifest.options.empty()) {
    set_unrecorded_options(bundle, options);
  } else if (const Status read = read_recorded_options(manifest.options, options); !read) {
    return bad_input(fmt::format("{}: options of the conversion: {}", printable(bundle.path()),
                                 read.error().message));
  }
  if (!options.inputs) options.inputs = checkpoint::inputs_of(manifest);
  options.factors = factors_of(bundle);
  options.quantize.shares_tied_table = false;
  // The manifest states the call length of an encoder, which equals its context length.
  if (options.style == converters::ProgramStyle::kEncoder) options.prefill_length.reset();
  if (manifest.program_style == kStaticStyle) set_encodings(manifest, options.ports);
  return options;
}

Result<Conversion> plan_for(const packer::Bundle& bundle, const ConvertOptions& options,
                            ThreadPool& pool) {
  const packer::Manifest& manifest = bundle.manifest();
  const std::string& source = options.source;
  Result<Conversion> planned = plan_conversion(options, &pool);
  // The options come from the bundle and not from a user, so the error is not one of usage.
  if (!planned && planned.error().code == ErrorCode::kUsage) {
    return bad_input(fmt::format("{}: the options that it was made with do not fit {}: {}",
                                 printable(bundle.path()), printable(source),
                                 planned.error().message));
  }
  Conversion conversion = FERRY_TRY(std::move(planned));
  if (!conversion.mapped.problems.empty()) {
    return Failure(
        converters::problems_error(conversion.mapped.problems, *conversion.mapped.source));
  }
  if (conversion.mapped.config.model_type != manifest.model_type ||
      conversion.mapped.config.vocab_size != manifest.vocab_size ||
      conversion.mapped.config.hidden_size != manifest.hidden_size ||
      conversion.mapped.config.num_layers != manifest.num_layers) {
    return bad_input(fmt::format(
        "{}: is another model than the bundle's: {} with {} layers, hidden {}, vocabulary {}; the "
        "bundle is {} with {}, {}, {}",
        source, quoted(conversion.mapped.config.model_type), conversion.mapped.config.num_layers,
        conversion.mapped.config.hidden_size, conversion.mapped.config.vocab_size,
        quoted(manifest.model_type), manifest.num_layers, manifest.hidden_size,
        manifest.vocab_size));
  }
  return conversion;
}

Result<Conversion> plan_again(const packer::Bundle& bundle, ConvertOptions options,
                              ThreadPool& pool) {
  Conversion recorded = FERRY_TRY(plan_for(bundle, options, pool));
  if (same_dtypes(recorded, bundle.manifest())) return recorded;
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
  return plan_for(bundle, options, pool);
}

Result<Conversion> plan_f32_layers(const packer::Bundle& bundle, ConvertOptions options,
                                   int64_t call_length, ThreadPool& pool) {
  const bool is_encoder = bundle.manifest().program_style == kEncoderStyle;
  // A stateful program with plain attention computes the same model as any program kind of a
  // decoder.
  if (!is_encoder) options.style = converters::ProgramStyle::kStateful;
  options.decode_length = {};
  options.shards_in_one_file = false;
  options.layout = {};
  // Programs of their own take images of any shape.
  if (const auto& grid = bundle.manifest().image_grid; grid && options.image_size) {
    const int64_t patch = std::max<int64_t>(1, grid->patch_size);
    options.max_patches = options.image_size->area() / (patch * patch);
  }
  options.image_size.reset();
  options.max_file_bytes = 0;
  options.ports = {};
  options.quantize = {};
  options.kv_cache = DType::kF32;
  options.attention_sink.reset();  // proofs end where the window does
  options.text_positions.reset();
  options.single_head_attention = false;
  options.softmax = converters::SoftmaxStyle::kPlain;
  options.rotation = converters::Rotation::kNone;
  options.dtype = graph::WeightDType::kF32;
  options.component_dtypes = {};
  options.shards = static_cast<int32_t>(bundle.manifest().num_layers);
  if (!is_encoder) {
    options.all_logits = true;
    // Calls have room for an image, which the prompts need not have.
    const bool sees = packer::row_encoder(bundle.manifest(), kVisionEncoderRole) != nullptr;
    options.prefill_length =
        std::min(std::max(call_length, sees ? bundle.manifest().prefill_length : 0),
                 bundle.manifest().context_length);
  }
  options.buffers = {};
  return plan_for(bundle, options, pool);
}

}  // namespace ferry::plan
