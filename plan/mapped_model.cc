#include "plan/mapped_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "checkpoint/checkpoint_input.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/config/version_rules.h"
#include "converters/family.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"
#include "plan/image_patches.h"
#include "plan/options.h"
#include "plan/program_lengths.h"

namespace ferry::plan {
namespace {

using converters::ProgramStyle;

constexpr const char* kOneSize =
    "one program of all components takes images of one size, which --image-size states";

// Returns why programs of these options take no images of Gemma 4, or nullptr.
const char* gemma4_obstacle(const ConvertOptions& options, const converters::ModelConfig& config) {
  if (options.style == ProgramStyle::kEncoder) return "an encoder takes no images";
  return is_one_program(options) && converters::takes_layer_tokens(config) && !options.image_size
             ? kOneSize
             : nullptr;
}

// Returns why programs of these options take no images, or nullptr.
const char* image_obstacle(const ConvertOptions& options, const converters::ModelConfig& config) {
  if (config.vision && config.vision->gemma4) return gemma4_obstacle(options, config);
  if (config.vision && config.vision->tiled && is_one_program(options)) {
    return "one program of all components takes no pictures of several tiles";
  }
  if (config.vision && config.vision->mobilenet && options.style == ProgramStyle::kEncoder) {
    return "an encoder takes no images";
  }
  if (!config.vision || !config.vision->any_shape) return nullptr;
  if (options.style.value_or(ProgramStyle::kStateful) != ProgramStyle::kStateful) {
    return "stateful programs alone take images of any shape";
  }
  return is_one_program(options) && !options.image_size ? kOneSize : nullptr;
}

// Returns why programs of these options take no sounds of a model that takes them by choice, or
// nullptr.
const char* sound_obstacle(const ConvertOptions& options, const converters::ModelConfig& config) {
  const bool encodes = options.style == ProgramStyle::kEncoder;
  return config.audio && config.audio->usm && encodes ? "an encoder takes no sounds" : nullptr;
}

// Refuses inputs that the model cannot have.
Status check_inputs(const ConvertOptions& options, const converters::ModelConfig& config) {
  if (const char* why = image_obstacle(options, config)) {
    return fail_field(ErrorCode::kUnsupported, "inputs", fmt::format(" images: {}", why));
  }
  if (const char* why = sound_obstacle(options, config)) {
    return fail_field(ErrorCode::kUnsupported, "inputs", fmt::format(" sounds: {}", why));
  }
  if (!options.inputs) return {};
  const converters::Inputs built = {.images = config.vision.has_value(),
                                    .sounds = config.hears_rows()};
  if (*options.inputs == built) return {};
  const std::string& type = config.model_type;
  const auto refused = [](const std::string& why) {
    return fail_field(ErrorCode::kUnsupported, "inputs", why);
  };
  if (options.inputs->images && !built.images) {
    return refused(fmt::format(" images: Ferry builds no vision tower of {}", type));
  }
  if (options.inputs->sounds && !built.sounds) {
    return refused(fmt::format(" sounds: Ferry builds no audio encoder of {}", type));
  }
  return refused(
      fmt::format(" text: the programs of {} take {}", type, config.vision ? "images" : "sound"));
}

// Sets config.is_encoder. kUnsupported for a program kind that the model cannot have. `config_name`
// begins messages about the config.
Status settle_style(const ConvertOptions& options, const std::string& config_name,
                    converters::ModelConfig& config) {
  const bool encodes = config.two_way || config.classifier;
  const ProgramStyle otherwise = encodes ? ProgramStyle::kEncoder : ProgramStyle::kStateful;
  config.is_encoder = options.style.value_or(otherwise) == ProgramStyle::kEncoder;
  if (config.two_way && !config.is_encoder) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{}: tokens of this {} attend to later ones too, which encoders alone do",
                    config_name, config.model_type));
  }
  if (config.classifier && !config.is_encoder) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: 'architectures' names a classifier, which becomes an encoder",
                            config_name));
  }
  const bool decodes = config.audio && !config.audio->conformer && !config.hears_rows();
  if (decodes && options.style.value_or(ProgramStyle::kStateful) != ProgramStyle::kStateful) {
    return fail_field(ErrorCode::kUnsupported, "program",
                      fmt::format(" {}: {} takes sound, and has stateful programs alone",
                                  style_name(*options.style), config.model_type));
  }
  if (config.source && options.style.value_or(ProgramStyle::kStateful) != ProgramStyle::kStateful) {
    return fail_field(
        ErrorCode::kUnsupported, "program",
        fmt::format(" {}: {} has an encoder and a decoder, and stateful programs alone",
                    style_name(*options.style), config.model_type));
  }
  if (!config.is_encoder) return {};
  if (config.vision_family != nullptr) {
    return fail_field(ErrorCode::kUnsupported, "program",
                      fmt::format(" encoder: {} takes {}", config.model_type,
                                  config.vision ? "images" : "sound"));
  }
  if (std::ranges::none_of(config.layer_types, converters::has_state)) return {};
  return fail_field(ErrorCode::kUnsupported, "program",
                    fmt::format(" encoder: {} has layers without attention", config.model_type));
}

graph::Weight* find_weight(converters::Assembled& made, const std::string& name) {
  for (converters::AssembledComponent& component : made.components) {
    if (graph::Weight* found = component.model.weights.find(name)) return found;
  }
  return made.tied.find(name);
}

// Merges tied weights. A checkpoint may hold both names of a tied weight if their values are equal.
Status join_ties(converters::Assembled& made, const std::vector<converters::TieRule>& ties,
                 const TensorSource& source) {
  for (const converters::TieRule& tie : ties) {
    graph::Weight* target = find_weight(made, tie.target);
    const graph::Weight* same = find_weight(made, tie.same_as);
    if (target == nullptr || same == nullptr || target->recipe == same->recipe) continue;
    const std::string key = source_names(target->recipe, source);
    if (!FERRY_TRY(same_bytes(target->recipe, same->recipe, source))) {
      if (tie.unless_stored) continue;
      return bad_input(
          fmt::format("{}: 'tie_word_embeddings' of the config ties '{}' to '{}', but the "
                      "checkpoint holds other "
                      "values for it (tensor {})",
                      source.path(), tie.target, tie.same_as, quoted(key)));
    }
    target->recipe = same->recipe;
    for (converters::MappedEntry& entry : made.report.entries) {
      if (entry.source == key) entry.rule = tie.name;
    }
  }
  return {};
}

}  // namespace

Result<bool> same_bytes(const graph::Recipe& a, const graph::Recipe& b,
                        const TensorSource& source) {
  if (a == b) return true;
  if (a.output() != b.output()) return false;
  const uint64_t bytes = a.output().bytes();
  const uint64_t tile = std::min(std::max(tile_bytes(a), tile_bytes(b)), bytes);
  std::vector<std::byte> left(tile), right(tile);
  for (uint64_t at = 0; at < bytes; at += tile) {
    const size_t count = std::min(tile, bytes - at);
    FERRY_RETURN_IF_ERROR(graph::materialize(a, source, at, std::span(left).first(count)));
    FERRY_RETURN_IF_ERROR(graph::materialize(b, source, at, std::span(right).first(count)));
    if (std::memcmp(left.data(), right.data(), count) != 0) return false;
  }
  return true;
}

namespace {

// Returns why programs of these options have not the tower that `config` was read with; empty if
// they have it.
std::string tower_obstacle(const ConvertOptions& options,
                           const Result<converters::ModelConfig>& config) {
  if (!config) return config.error().message;
  const char* obstacle = image_obstacle(options, *config);
  if (obstacle == nullptr) obstacle = sound_obstacle(options, *config);
  if (obstacle != nullptr) return obstacle;
  if (has_room_for_image(options, *config)) return "";
  return config->vision ? fmt::format("an image of {} needs {} tokens in a call",
                                      config->model_type, rows_of_image(options, *config->vision))
                        : fmt::format("a sound of {} needs {} tokens in a call", config->model_type,
                                      rows_of_sound(options, *config));
}

// Reads the config. A tower that is built where the checkpoint has it is left out, with a note, if
// it is not supported or if calls are too short for it, unless the options ask for it or state
// the size of images.
Result<converters::ModelConfig> read_config(const ConvertOptions& options,
                                            const checkpoint::CheckpointInput& opened,
                                            converters::ConfigReport& report,
                                            std::vector<std::string>& notes) {
  using converters::Inputs;
  const auto read = [&](Inputs inputs) {
    report = {};
    auto config =
        converters::parse_model_config(opened.config, opened.generation, opened.config_name,
                                       &report, converters::all_families(), inputs);
    if (!config) return config;
    const Status settled = settle_patches(options, opened.copied, *config);
    if (!settled) config = Failure(settled.error());
    return config;
  };
  const Inputs has = opened.inputs;
  if (options.inputs) return read(*options.inputs);
  auto config = read(has);
  if (has.are_text() || tower_obstacle(options, config).empty()) return config;
  const auto text = read({});
  if (!text) return text;
  // The towers are part of every model of this family.
  if (text->takes_rows()) return read(has);
  Inputs kept;
  if (has.images) {
    config = read({.images = true});
    const std::string why = tower_obstacle(options, config);
    if (!why.empty() && options.image_size) return config;
    if (!why.empty()) notes.push_back("the programs take text and no images: " + why);
    kept.images = why.empty();
  }
  if (has.sounds) {
    const std::string why = tower_obstacle(options, read({.sounds = true}));
    if (!why.empty()) notes.push_back("the programs take no sounds: " + why);
    kept.sounds = why.empty();
  }
  return read(kept);
}

// An adapter of prompts with sounds alone needs a choice.
Status check_adapter(const ConvertOptions& options, const checkpoint::CheckpointInput& opened,
                     const converters::ModelConfig& config) {
  constexpr const char* kAdapterFile = "adapter_config.json";
  const bool chosen =
      !options.lora.empty() || !options.adapters.empty() || !options.factors.slots.empty();
  const bool has_adapter = config.hears_rows() && config.audio->to_rows->has_adapter;
  if (chosen || opened.directory.empty() || !has_adapter) return {};
  const std::string path = opened.directory + "/" + kAdapterFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{}: an adapter for prompts with sounds; state what becomes of it: --lora "
                  "DIR merges it, with --adapters NAME=DIR prompts choose it",
                  printable(path)));
}

}  // namespace

Result<MappedModel> map_checkpoint(const ConvertOptions& options) {
  checkpoint::CheckpointInput opened = FERRY_TRY(checkpoint::open_checkpoint_input(
      options.source, options.config, options.lora, options.mmproj));
  return map_checkpoint(options, std::move(opened));
}

Result<MappedModel> map_checkpoint(const ConvertOptions& options,
                                   checkpoint::CheckpointInput opened) {
  MappedModel model;
  MappedCheckpoint& c = model.checkpoint;
  c.notes = std::move(opened.notes);
  converters::ConfigReport report;
  c.config = FERRY_TRY(read_config(options, opened, report, c.notes));
  FERRY_RETURN_IF_ERROR(check_adapter(options, opened, c.config));
  converters::observe_keys(opened.tensors, c.config);
  FERRY_RETURN_IF_ERROR(check_inputs(options, c.config));
  FERRY_RETURN_IF_ERROR(settle_style(options, opened.config_name, c.config));
  if (c.config.classifier) {
    FERRY_RETURN_IF_ERROR(checkpoint::read_classifier_folder(opened, c.config));
  } else if (c.config.is_encoder && !c.config.audio) {
    FERRY_RETURN_IF_ERROR(checkpoint::add_sentence_modules(opened, c.config));
  } else if (checkpoint::has_sentence_modules(opened)) {
    c.notes.push_back(fmt::format(
        "{}: a folder of sentence-transformers; a program of style encoder gives its vectors",
        printable(options.source)));
  }
  c.source = std::move(opened.source);
  c.unused_config_keys = std::move(report.unused_keys);
  if (!opened.directory.empty()) {
    for (const converters::VersionReading& reading : report.version_readings) {
      c.notes.push_back(converters::version_note(reading, opened.config_name));
    }
    c.version_readings = std::move(report.version_readings);
  }
  c.family = converters::family_name(c.config);
  model.build = FERRY_TRY(settle_lengths(options, c.config));

  converters::Assembled made = FERRY_TRY(converters::assemble(
      *c.source, opened.tensors, c.config, model.build,
      {.allow_unmapped = options.allow_unmapped, .packed_layout = options.packed_layout}));
  if (options.packed_layout && made.problems.empty() && !made.report.packed_keys) {
    return fail_field(ErrorCode::kUsage, "packed-layout",
                      fmt::format(": {} has no packed tensor that comes "
                                  "in several layouts",
                                  printable(options.source)));
  }
  c.problems = std::move(made.problems);
  if (c.problems.empty())
    FERRY_RETURN_IF_ERROR(join_ties(made, converters::standard_ties(c.config), *c.source));
  c.mapping = std::move(made.report);
  model.components = std::move(made.components);
  model.tensors = std::move(opened.tensors);
  model.config_text = std::move(opened.config);
  model.config_name = std::move(opened.config_name);
  model.generation_text = std::move(opened.generation);
  model.copied = std::move(opened.copied);
  return model;
}

}  // namespace ferry::plan
