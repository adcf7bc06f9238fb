#include "plan/conversion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_input.h"
#include "converters/assemble.h"
#include "converters/blocks/any_shape_encoder.h"
#include "converters/blocks/rope.h"
#include "converters/family.h"
#include "converters/keys/standard_keys.h"
#include "core/file.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "core/version.h"
#include "graph/lower.h"
#include "plan/adapters.h"
#include "plan/mapped_model.h"
#include "plan/options.h"
#include "plan/program_metadata.h"
#include "plan/quantize.h"
#include "plan/tokenizer_notes.h"

namespace ferry::plan {
namespace {

// Returns the name of the embedded reference, which is a copy of the file at `path`.
const char* reference_name(const std::string& path) {
  const bool hdf5 = path.ends_with(".h5") || path.ends_with(".hdf5");
  return hdf5 ? "reference.h5" : "reference.safetensors";
}

// Replaces targets of the mapping that were split into one weight per head by the names of these
// weights.
void name_head_weights(converters::MappingReport& mapping, const graph::StateDict& weights) {
  for (converters::MappedEntry& entry : mapping.entries) {
    std::vector<std::string> targets;
    for (std::string& target : entry.targets) {
      const auto of_head = [&](int64_t head) { return graph::head_weight_name(target, head); };
      if (weights.find(target) != nullptr || weights.find(of_head(0)) == nullptr) {
        targets.push_back(std::move(target));
        continue;
      }
      for (int64_t head = 0; weights.find(of_head(head)) != nullptr; ++head) {
        targets.push_back(of_head(head));
      }
    }
    entry.targets = std::move(targets);
  }
}

// Returns the dtype of all matrices of floats, such as "f32", or "mixed" if they differ. Biases of
// experts do not count, although they have two dimensions.
std::string weight_dtype(const graph::Model& model) {
  std::set<DType> dtypes;
  for (const graph::MethodGraph& method : model.methods) {
    for (const graph::Value& value : method.graph.values) {
      const bool is_matrix = value.origin == graph::Value::Origin::kWeight &&
                             value.shape.size() == 2 && !value.name.ends_with(".bias");
      const auto stored = model.weights.find_output(value.name);
      const bool is_coded = stored.weight != nullptr && stored.weight->recipe.is_coded();
      if (is_matrix && !is_coded && !value.keep_f32) dtypes.insert(value.dtype);
    }
  }
  if (dtypes.empty()) return "";
  return dtypes.size() == 1 ? std::string(dtype_name(*dtypes.begin())) : "mixed";
}

// Whether the component holds the layers that the manifest counts, and so may be sharded.
bool is_main(std::string_view role, const converters::ModelConfig& config) {
  const bool hears = config.audio && config.audio->conformer;
  return hears || role == kTextDecoderRole || role == kTextEncoderRole;
}

packer::Manifest make_manifest(const converters::ModelConfig& config,
                               const converters::BuildOptions& build, const ConvertOptions& options,
                               const converters::MappingReport& mapping,
                               const std::vector<ConvertedComponent>& components) {
  packer::Manifest m;
  m.tool = {"ferry", std::string(version())};
  m.options = recorded_options(options, build);
  m.model_type = config.model_type;
  m.vocab_size = config.vocab_size;
  m.hidden_size = config.hidden_size;
  m.num_layers = config.num_layers;
  m.context_length = build.context_length;
  m.prefill_length = build.prefill_length;
  m.all_logits = build.all_logits;
  m.program_style = style_name(build.style);
  for (const packer::ManifestOption& option : m.options) {
    if (option.name == "attention") m.attention = option.value;
    if (option.name == "softmax") m.softmax = option.value;
    if (option.name == "rotate") m.rotate = option.value;
    if (option.name == "packed-layout") m.packed_layout = option.value;
  }
  if (options.shards_in_one_file) m.parts_in_program = options.shards;
  for (const ConvertedComponent& component : components) {
    if (is_main(component.role, config)) m.weight_dtype = component.weight_dtype;
  }
  m.bos_id = config.bos_id;
  m.eos_ids = config.eos_ids;
  if (config.vision) m.image_token_id = config.vision->image_token_id;
  if (config.vision && config.vision->any_shape) {
    m.version = packer::kImageGridManifestVersion;
    m.image_grid = converters::image_grid_of(*config.vision);
  }
  if (config.source) {
    m.version = packer::kSourceManifestVersion;
    m.decoder_start_id = config.decoder_start_id;
  }
  if (config.vision && config.vision->two_way_prompts) {
    m.version = packer::kTwoWayPromptsManifestVersion;
    m.two_way_prompts = true;
  }
  if (config.vision && config.vision->tiled) {
    m.version = packer::kImageTilesManifestVersion;
    m.image_tiles.emplace().most_tiles = config.vision->tiled->most_tiles;
    for (const Extent& size : config.vision->tiled->resolutions) {
      m.image_tiles->resolutions.insert(m.image_tiles->resolutions.end(),
                                        {size.rows, size.columns});
    }
  }
  if (build.picture || build.placed_rows) m.version = packer::kPlacedRowsManifestVersion;
  if (config.hears_rows()) {
    m.version = packer::kSoundRowsManifestVersion;
    m.audio_token_id = config.audio->to_rows->token_id;
    if (config.audio->counts_frames()) {
      m.version = packer::kSoundFramesManifestVersion;
      const auto& usm = config.audio->usm;
      m.audio_row_frames = usm ? usm->row_frames() : config.audio->granite->projector.window;
      if (usm && usm->gemma3n) {
        m.version = packer::kPaddedSoundsManifestVersion;
        m.audio_rows = usm->gemma3n->rows;
        if (usm->future == 0) {
          m.version = packer::kCausalSoundsManifestVersion;
          m.audio_causal_frames = usm->row_frames() / usm->gemma3n->reduction;
        }
      }
      if (!usm) {
        m.version = packer::kSoundBlocksManifestVersion;
        m.audio_block_rows = config.audio->granite->projector.queries;
      }
    }
  }
  if (build.picture && !m.image_grid) {
    m.patch_list = {config.vision->patch_size, config.vision->shuffle};
  }
  if (build.attention_sink) {
    m.version = std::max(m.version, packer::kAttentionSinkManifestVersion);
    m.attention_sink = {build.attention_sink->sink, build.attention_sink->window};
  }
  // A bundle for pictures of one size takes no videos.
  const bool any_size = config.vision && !build.picture && !build.placed_rows;
  if (any_size && config.vision->video_token_id.value_or(m.vocab_size) < m.vocab_size) {
    m.version = std::max(m.version, packer::kVideoManifestVersion);
    m.video_token_id = config.vision->video_token_id;
    m.tokens_per_second = config.vision->tokens_per_second;
  }
  m.rope_switch = converters::longrope_switch(config.rope, build);
  if (config.classifier) {
    m.version = packer::kClassifierManifestVersion;
    m.classifier = {config.classifier->scores, config.classifier->labels};
  }
  m.allowed_unmapped = mapping.allowed;
  for (const converters::MappedEntry& entry : mapping.entries) {
    if (entry.targets.empty()) m.dropped.push_back({entry.source, entry.rule, entry.reason});
  }
  if (!options.reference.empty()) m.reference = reference_name(options.reference);
  return m;
}

// Returns the first layer and the number of layers that have a node in any method of `part`.
std::pair<int32_t, int32_t> layers_of(const graph::Model& part) {
  int32_t first = std::numeric_limits<int32_t>::max();
  int32_t end = 0;
  for (const graph::MethodGraph& method : part.methods) {
    for (const graph::Node& node : method.graph.nodes) {
      if (node.layer < 0 || node.layer >= method.graph.num_layers) continue;
      first = std::min(first, node.layer);
      end = std::max(end, node.layer + 1);
    }
  }
  return end == 0 ? std::pair(0, 0) : std::pair(first, end - first);
}

// Adds the memory that a program needs. Buffers that methods share count once.
void add_memory(const graph::LoweredProgram& lowered, Conversion& conversion) {
  std::set<std::string_view> seen;
  for (const graph::LoweredMethod& method : lowered.methods) {
    if (method.activation_bytes > conversion.activation_bytes) {
      conversion.activation_bytes = method.activation_bytes;
      conversion.activation_lower_bound = method.activation_lower_bound;
    }
    for (const graph::LoweredBuffer& b : method.buffers) {
      if (!seen.insert(b.name).second) continue;
      conversion.buffers.push_back({b.name, b.dtype, b.shape, b.bytes, b.initial != 0});
    }
  }
  conversion.state_bytes += lowered.state_bytes;
}

using SharedProgram = std::shared_ptr<graph::LoweredProgram>;

graph::OutputMemory output_memory(const converters::BuildOptions& build) {
  return build.style == converters::ProgramStyle::kStatic ? graph::OutputMemory::kCallers
                                                          : graph::OutputMemory::kPlanned;
}

// Returns the name that a method has in a program of all components.
std::string name_in_program(const graph::MethodGraph& method, const ConvertedComponent& component) {
  return method.name == kForwardMethod ? component.role : method.name;
}

// Lowers all components as one program.
Result<SharedProgram> lower_together(Conversion& conversion,
                                     const converters::BuildOptions& build) {
  std::vector<graph::MethodGraph> methods;
  conversion.all_weights = std::make_unique<graph::StateDict>();
  for (const ConvertedComponent& component : conversion.components) {
    for (const graph::MethodGraph& method : component.parts.front().methods) {
      methods.push_back({name_in_program(method, component), method.graph});
    }
    for (const graph::Weight& weight : component.parts.front().weights.weights()) {
      const graph::Weight* known = std::as_const(*conversion.all_weights).find(weight.name);
      if (known != nullptr && known->recipe == weight.recipe) continue;
      FERRY_RETURN_IF_ERROR(conversion.all_weights->add(weight));
    }
  }
  return std::make_shared<graph::LoweredProgram>(FERRY_TRY(graph::lower(
      methods, program_metadata(conversion.mapped.config, build), output_memory(build))));
}

// Lowers every part of every component and adds the programs to the input of the plan.
Status lower_components(Conversion& conversion, const converters::BuildOptions& build,
                        packer::BundleInput& input) {
  SharedProgram shared;
  if (input.one_program && conversion.components.size() > 1) {
    shared = FERRY_TRY(lower_together(conversion, build));
    add_memory(*shared, conversion);
  }
  for (const ConvertedComponent& component : conversion.components) {
    std::vector<graph::MetadataMethod> metadata;
    if (is_main(component.role, conversion.mapped.config)) {
      metadata = program_metadata(conversion.mapped.config, build);
    }
    packer::BundleInput::Component& out = input.components.emplace_back();
    out.role = component.role;
    out.weight_dtype = component.weight_dtype;
    out.quantization = component.quantization;
    for (const graph::Model& part : component.parts) {
      const auto [first, count] = layers_of(part);
      packer::BundleInput::Part& added = out.parts.emplace_back(packer::BundleInput::Part{
          .lowered = shared, .weights = &part.weights, .first_layer = first, .layer_count = count});
      if (shared) {
        added.weights = conversion.all_weights.get();
        for (const graph::MethodGraph& method : part.methods) {
          added.methods.push_back(name_in_program(method, component));
        }
        continue;
      }
      added.lowered = std::make_shared<graph::LoweredProgram>(
          FERRY_TRY(graph::lower(part.methods, metadata, output_memory(build))));
      add_memory(*added.lowered, conversion);
    }
  }
  return {};
}

// Returns what the checkpoint has towers for that are built by choice.
converters::Inputs towers_in(const TensorSource& source) {
  converters::Inputs found;
  for (const TensorEntry& entry : source.entries()) {
    found.images = found.images || entry.name.find("vision_tower.") != std::string::npos ||
                   entry.name.starts_with("visual.") || entry.name.starts_with("model.visual.");
    found.sounds = found.sounds || entry.name.find("audio_tower.") != std::string::npos;
  }
  return found;
}

Status check_layout(const ConvertOptions& options) {
  if (options.layout != ProgramLayout::kOneProgram || options.shards == 1 ||
      options.shards_in_one_file) {
    return {};
  }
  return fail_field(ErrorCode::kUsage, "layout",
                    fmt::format(" one-program: not with {} shards", options.shards));
}

// Checks that a node takes the factors of each slot.
Status check_factors(const graph::FactorSlots& slots, const packer::BundleInput& input) {
  std::set<std::string_view> names;
  for (const packer::BundleInput::Component& component : input.components) {
    for (const packer::BundleInput::Part& part : component.parts) {
      for (const graph::LoweredFactor& factor : part.lowered->factors) names.insert(factor.name);
    }
  }
  for (const graph::FactorSlot& slot : slots.slots) {
    if (names.contains(graph::factor_names(slot).scale)) continue;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} takes no factors of an adapter: no {} reads it",
                            quoted(slot.weight), slot.is_table ? "embedding" : "linear layer"));
  }
  return {};
}

Status check_roles(const std::vector<converters::AssembledComponent>& components,
                   const ConvertOptions& options) {
  for (const auto& [role, dtype] : options.component_dtypes) {
    if (std::ranges::count(components, role, &converters::AssembledComponent::role) > 0) continue;
    std::vector<std::string_view> roles;
    for (const converters::AssembledComponent& has : components) roles.push_back(has.role);
    return fail_field(ErrorCode::kUsage, "component-dtype",
                      fmt::format(" {}: the model has no such component; it has {}", quoted(role),
                                  fmt::join(roles, ", ")));
  }
  return {};
}

// Casts and quantises the weights of a component as the options ask.
Result<graph::QuantizedModel> finish_component(converters::AssembledComponent component,
                                               const ConvertOptions& options,
                                               const graph::FactorSlots& slots,
                                               Quantizer& quantizer, MappedCheckpoint& mapped) {
  graph::Model model = std::move(component.model);
  if (options.single_head_attention && component.role == kTextDecoderRole) {
    model = FERRY_TRY(graph::split_heads(std::move(model)));
    name_head_weights(mapped.mapping, model.weights);
  }
  if (options.keeps_blocks) {
    model = FERRY_TRY(graph::keep_blocks(std::move(model), *mapped.source, options.keeps_blocks));
  }
  if (!slots.slots.empty()) model = FERRY_TRY(graph::add_factors(std::move(model), slots));
  graph::QuantizedModel out = FERRY_TRY(quantizer.apply(std::move(model)));
  const auto own = options.component_dtypes.find(component.role);
  const bool is_own = own != options.component_dtypes.end();
  model =
      FERRY_TRY(graph::cast_weights(std::move(out.model), is_own ? own->second : options.dtype));
  out.model = FERRY_TRY(graph::init_buffers(std::move(model), options.buffers));
  return out;
}

// Splits a component into programs, if it is the one that is split.
Result<std::vector<graph::Model>> cut(graph::Model model, bool splits,
                                      const ConvertOptions& options) {
  if (!splits) {
    std::vector<graph::Model> whole;
    whole.push_back(std::move(model));
    return whole;
  }
  if (!options.shards_in_one_file) return graph::shard(model, options.shards);
  std::vector<graph::Model> parts;
  parts.push_back(FERRY_TRY(graph::mark_cuts(std::move(model), options.shards)));
  return parts;
}

// Returns the id of the image placeholder from the tokenizer, for configs that do not state it.
std::optional<int64_t> placeholder_in(const std::vector<packer::CopiedFile>& copied,
                                      const converters::ModelConfig& config) {
  if (config.vision->image_token.empty()) return std::nullopt;
  const std::optional<int64_t> id = token_id_in(copied, config.vision->image_token);
  return id && *id < config.vocab_size ? id : std::nullopt;
}

}  // namespace

Result<Conversion> plan_conversion(const ConvertOptions& given, ThreadPool* pool) {
  ConvertOptions options = given;
  FERRY_RETURN_IF_ERROR(check_layout(options));
  checkpoint::CheckpointInput opened = FERRY_TRY(checkpoint::open_checkpoint_input(
      options.source, options.config, options.lora, options.mmproj));
  const converters::Inputs towers = towers_in(*opened.source);
  opened.inputs.images = opened.inputs.images || towers.images;
  opened.inputs.sounds = opened.inputs.sounds || towers.sounds;
  MappedModel model = FERRY_TRY(map_checkpoint(options, std::move(opened)));
  const converters::BuildOptions& build = model.build;
  PlannedAdapters adapters;
  if (model.checkpoint.problems.empty()) adapters = FERRY_TRY(plan_adapters(options, model));
  Conversion c;
  c.mapped = std::move(model.checkpoint);
  if (const std::optional<int64_t> limit =
          converters::longrope_switch(c.mapped.config.rope, build)) {
    c.mapped.notes.push_back(converters::longrope_note(*limit, build));
  }
  if (!c.mapped.problems.empty()) return c;
  FERRY_RETURN_IF_ERROR(check_roles(model.components, options));
  if (share_tied_table(options.quantize, c.mapped.mapping)) {
    c.mapped.notes.emplace_back(
        "the output matrix is the embedding, so both share one 8-bit table; the rule output=8da4w "
        "stores it once more in 4 bits");
  }
  packer::BundleInput input;
  std::optional<ThreadPool> own_pool;
  if (pool == nullptr) pool = &own_pool.emplace(1);
  Quantizer quantizer(options.quantize, *c.mapped.source, *pool);
  for (converters::AssembledComponent& component : model.components) {
    const std::string role = component.role;
    graph::QuantizedModel finished = FERRY_TRY(
        finish_component(std::move(component), options, adapters.slots, quantizer, c.mapped));
    std::string dtype = weight_dtype(finished.model);
    auto shards =
        FERRY_TRY(cut(std::move(finished.model), is_main(role, c.mapped.config), options));
    c.components.push_back(
        {role, std::move(shards), std::move(dtype), std::move(finished.summary)});
  }
  FERRY_RETURN_IF_ERROR(quantizer.check_rules());
  for (std::string note : {quantizer.kept_note(), quantizer.replaced_note()}) {
    if (!note.empty()) c.mapped.notes.push_back(std::move(note));
  }
  input.manifest = make_manifest(c.mapped.config, build, options, c.mapped.mapping, c.components);
  input.copied = std::move(model.copied);
  if (c.mapped.config.vision && !input.manifest.image_token_id) {
    input.manifest.image_token_id = placeholder_in(input.copied, c.mapped.config);
  }
  if (c.mapped.config.audio && c.mapped.config.audio->conformer) {
    FERRY_RETURN_IF_ERROR(check_blank(input.copied, c.mapped.config.audio->conformer->blank));
  }
  if (options.check_tokenizer) {
    for (std::string& note : tokenizer_notes(input.copied, c.mapped.config.vocab_size)) {
      c.mapped.notes.push_back(std::move(note));
    }
  }
  input.one_program = options.layout == ProgramLayout::kOneProgram;
  FERRY_RETURN_IF_ERROR(lower_components(c, build, input));
  FERRY_RETURN_IF_ERROR(check_factors(adapters.slots, input));
  input.adapters = std::move(adapters.files);
  if (!options.reference.empty()) {
    InputFile file = FERRY_TRY(InputFile::open(options.reference));
    input.copied.push_back(
        {reference_name(options.reference), std::make_shared<const InputFile>(std::move(file))});
  }
  c.plan = FERRY_TRY(
      packer::BundlePlan::make(std::move(input), *c.mapped.source, options.max_file_bytes));
  return c;
}

}  // namespace ferry::plan
