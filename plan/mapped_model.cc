#include "plan/mapped_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "checkpoint/checkpoint_input.h"
#include "converters/blocks/conformer.h"
#include "converters/blocks/gemma4_audio.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/rope.h"
#include "converters/blocks/sentence.h"
#include "converters/blocks/static_ports.h"
#include "converters/config/version_rules.h"
#include "converters/family.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"
#include "plan/image_patches.h"
#include "plan/options.h"

namespace ferry::plan {
namespace {

using converters::ProgramStyle;

constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kDefaultPrefill = 512;
// The default prefill length of static programs is short, because a static prefill always computes
// all of its positions, however short the prompt is.
constexpr int64_t kDefaultStaticPrefill = 128;
constexpr int64_t kDefaultTextLength = 2048;
// The tokens of text that are in one call with an image, where they attend to each other: at least
// the two that every prompt has.
constexpr int64_t kLeastText = 2, kDefaultText = 256;
constexpr int64_t kDefaultSoundSeconds = 60;
// The feature extractor of Gemma 4 cuts sounds to so many.
constexpr int64_t kMostGemma4Seconds = 30;
// The answers of encoder-decoders begin with a token or two, and biases by distance take memory for
// every token of a call and position of the context.
constexpr int64_t kDefaultSourceLength = 512, kDefaultAnswerLength = 512, kDefaultAnswerCall = 32;
// Matrices are as fast with more rows, and masks take memory with the square of the tokens.
constexpr int64_t kTextsLength = 512;

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
  return config.audio && config.audio->gemma4 && encodes ? "an encoder takes no sounds" : nullptr;
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

// Returns the context length of an encoder for options that state none.
int64_t default_text_length(const converters::ModelConfig& config) {
  std::optional<int64_t> stated;
  if (config.sentence) stated = config.sentence->max_tokens;
  if (config.classifier) stated = config.classifier->max_tokens;
  return std::min({config.max_positions, stated.value_or(kDefaultTextLength), kDefaultTextLength});
}

// Returns the build options of an encoder for texts of up to build.context_length tokens. kUsage
// for options that encoders do not accept.
Result<converters::BuildOptions> settle_encoder(const ConvertOptions& options,
                                                const converters::ModelConfig& config,
                                                converters::BuildOptions build) {
  FERRY_RETURN_IF_ERROR(check_encoder_options(options));
  build.style = ProgramStyle::kEncoder;
  build.prefill_length = build.context_length;
  const bool pools = !config.sentence || converters::pools_several_texts(*config.sentence);
  if (config.only_encodes && pools) build.texts_length = kTextsLength;
  const auto limit = converters::longrope_switch(config.rope, build);
  if (!limit) return build;
  if (!options.context_length) {
    build.context_length = build.prefill_length = *limit;
    return build;
  }
  return fail_field(ErrorCode::kUsage, "program",
                    fmt::format(" encoder: sequences of more than {} tokens have other RoPE "
                                "factors (longrope), which an encoder cannot switch; give "
                                "a context length of {} or less",
                                *limit, *limit));
}

// Checks the requirements of a static program on the model and on its context length.
Status check_static(const ConvertOptions& options, const converters::ModelConfig& config,
                    const converters::BuildOptions& build) {
  if (build.context_length < 2) {
    return fail_field(ErrorCode::kUsage, "program",
                      " static: the context length must be at least 2");
  }
  if (std::ranges::none_of(config.layer_types, converters::is_attention)) {
    return fail_field(ErrorCode::kUnsupported, "program",
                      fmt::format(" static: no layer of this {} has attention, and the masks of "
                                  "attention are what states the context of a static program",
                                  config.model_type));
  }
  if (options.decode_length.value_or(1) > 1 &&
      std::ranges::any_of(config.layer_types, converters::has_state)) {
    return fail_field(ErrorCode::kUsage, "decode-length",
                      fmt::format(" {}: tokens of a lookahead may be rejected, and the "
                                  "recurrent states of {} cannot be rolled back",
                                  *options.decode_length, config.model_type));
  }
  if (const auto limit = converters::longrope_switch(config.rope, build)) {
    return fail_field(ErrorCode::kUsage, "program",
                      fmt::format(" static: sequences of more than {} tokens have other RoPE "
                                  "factors (longrope), which a static program cannot switch; give "
                                  "a context length of {} or less",
                                  *limit, *limit));
  }
  return {};
}

Status check_rotation(const converters::ModelConfig& config,
                      const converters::BuildOptions& build) {
  if (build.rotation == converters::Rotation::kNone) return {};
  for (const int64_t dim :
       {config.head_dim, config.heads_of(converters::LayerType::kFullAttention).dim}) {
    if (std::has_single_bit(static_cast<uint64_t>(dim))) continue;
    return fail_field(ErrorCode::kUsage, "rotate",
                      fmt::format(" r3: head_dim is {}, not a power of two", dim));
  }
  return {};
}

// Returns the most frames of a sound that an encoder takes that counts them.
int64_t most_frames(const ConvertOptions& options, const converters::ModelConfig& config) {
  const int64_t otherwise = config.audio->gemma4 ? kMostGemma4Seconds : kDefaultSoundSeconds;
  return options.max_sound.value_or(otherwise) * converters::kFrameRate;
}

// Returns the most rows of the text decoder that an input of the audio encoder becomes.
int64_t rows_of_sound(const ConvertOptions& options, const converters::ModelConfig& config) {
  if (!config.audio->gemma4) return config.audio->row_count();
  constexpr int64_t kFrames = converters::kGemma4RowFrames;
  return (most_frames(options, config) + kFrames - 1) / kFrames;
}

// Returns the length of calls that have room for an image, where all of its rows are in one, and
// for the text of a prompt, where that is in it too. Callers of one program of all components give
// it all rows of an image in one call.
int64_t with_image(int64_t length, const ConvertOptions& options,
                   const converters::ModelConfig& config, int64_t text) {
  // So it is with the rows of a window of sound.
  if (config.hears_rows() && is_one_program(options)) {
    length = std::max(length, rows_of_sound(options, config));
  }
  if (!config.vision || (!config.vision->two_way_images && !is_one_program(options))) return length;
  const int64_t more = config.vision->two_way_prompts ? text : 0;
  return std::max(length, rows_of_image(options, *config.vision) + more);
}

// In a prompt whose tokens attend to each other a window has no effect, and in the text behind it
// it has. Programs have one mask for both.
Status check_two_way_window(const converters::ModelConfig& config,
                            const converters::BuildOptions& build) {
  if (!config.vision || !config.vision->two_way_prompts || !config.sliding_window) return {};
  if (*config.sliding_window >= build.context_length) return {};
  return fail_field(ErrorCode::kUnsupported, "context-length",
                    fmt::format(" {}: the tokens of a prompt of {} see beyond the window of {}: "
                                "a context length of more is not supported",
                                build.context_length, config.model_type, *config.sliding_window));
}

Status check_image_call(const ConvertOptions& options, const converters::ModelConfig& config,
                        const converters::BuildOptions& build) {
  const int64_t least = with_image(0, options, config, kLeastText);
  if (build.prefill_length >= least) return {};
  const bool hears = config.hears_rows() && is_one_program(options);
  if (hears && rows_of_sound(options, config) == least) {
    return fail_field(ErrorCode::kUsage, "prefill-length",
                      fmt::format(" {}: the {} rows of a {}sound of {} are tokens of one call",
                                  build.prefill_length, least,
                                  config.audio->gemma4 ? "" : "window of ", config.model_type));
  }
  return fail_field(
      ErrorCode::kUsage, "prefill-length",
      fmt::format(" {}: the {} rows of an image of {} {} tokens of one call{}",
                  build.prefill_length, least, config.model_type,
                  config.vision->two_way_images ? "attend to each other, and so are" : "are",
                  config.vision->two_way_prompts ? ", with the text of the prompt"
                                                 : "; inputs text leaves images out"));
}

// Returns the most samples of a sound; 0 where no audio encoder takes samples.
Result<int64_t> sound_samples(const ConvertOptions& options,
                              const converters::ModelConfig& config) {
  const bool takes = config.audio && config.audio->takes_samples();
  if (takes) return options.max_sound.value_or(kDefaultSoundSeconds) * converters::kSampleRate;
  if (!options.max_sound) return int64_t{0};
  if (!config.audio || !config.audio->counts_frames()) {
    return fail_field(ErrorCode::kUsage, "max-sound",
                      ": is for audio encoders that take samples or frames of any number");
  }
  if (*options.max_sound <= kMostGemma4Seconds) return int64_t{0};
  return fail_field(ErrorCode::kUsage, "max-sound",
                    fmt::format(" {}: the feature extractor of {} cuts sounds to {} seconds",
                                *options.max_sound, config.model_type, kMostGemma4Seconds));
}

// Returns the build options of an encoder of sound that is the whole model. The number of positions
// is that of its rows.
Result<converters::BuildOptions> settle_sound_encoder(const ConvertOptions& options,
                                                      const converters::ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_encoder_options(options));
  converters::BuildOptions build;
  build.style = ProgramStyle::kEncoder;
  build.sound_frames = most_frames(options, config);
  build.context_length = build.prefill_length =
      converters::rows_of_frames(*config.audio->conformer, build.sound_frames);
  // Bundles record the number that they have.
  if (options.context_length.value_or(build.context_length) == build.context_length) return build;
  return fail_field(ErrorCode::kUsage, "context-length",
                    ": the rows of a sound follow from max-sound");
}

// Returns the most tokens of a text of the encoder; 0 where there is none.
Result<int64_t> source_length(const ConvertOptions& options,
                              const converters::ModelConfig& config) {
  constexpr const char* kOption = "max-source";
  if (!config.source) {
    if (!options.max_source) return int64_t{0};
    return fail_field(ErrorCode::kUsage, kOption, ": is for models with an encoder and a decoder");
  }
  const int64_t most = config.source->max_positions;
  const int64_t length = options.max_source.value_or(std::min(most, kDefaultSourceLength));
  if (length <= most) return length;
  return fail_field(ErrorCode::kUsage, kOption,
                    fmt::format(" {}: the encoder has {} positions", length, most));
}

// Returns the lengths of the context and of a call for options that state none.
int64_t default_context(const converters::ModelConfig& config) {
  if (config.is_encoder) return default_text_length(config);
  return std::min(config.max_positions, config.source ? kDefaultAnswerLength : kDefaultContext);
}
int64_t default_call(const converters::ModelConfig& config, int64_t context, bool fixed) {
  if (fixed) return std::min(context / 2, kDefaultStaticPrefill);
  return std::min(context, config.source ? kDefaultAnswerCall : kDefaultPrefill);
}

Result<converters::BuildOptions> settle_lengths(const ConvertOptions& options,
                                                const converters::ModelConfig& config) {
  if (config.audio && config.audio->conformer) return settle_sound_encoder(options, config);
  converters::BuildOptions build;
  build.context_length = options.context_length.value_or(default_context(config));
  if (build.context_length < 1 || build.context_length > config.max_positions) {
    return fail_field(ErrorCode::kUsage, "context-length",
                      fmt::format(" {}: the model has 1 to {} positions", build.context_length,
                                  config.max_positions));
  }
  if (config.is_encoder) return settle_encoder(options, config, std::move(build));
  build.style = options.style.value_or(ProgramStyle::kStateful);
  build.softmax = options.softmax;
  build.rotation = options.rotation;
  FERRY_RETURN_IF_ERROR(check_rotation(config, build));
  const bool fixed = build.style == ProgramStyle::kStatic;
  if (fixed) FERRY_RETURN_IF_ERROR(check_static(options, config, build));
  build.prefill_length =
      options.prefill_length.value_or(default_call(config, build.context_length, fixed));
  // A static program needs at least one column for the cache beside the columns of the call.
  const int64_t most = build.context_length - (fixed ? 1 : 0);
  if (!options.prefill_length) {
    const int64_t wanted = with_image(build.prefill_length, options, config, kDefaultText);
    // A static program caches only the positions that its longest call leaves.
    const int64_t room = fixed ? build.context_length / 2 : most;
    build.prefill_length = std::max(with_image(build.prefill_length, options, config, kLeastText),
                                    std::min(wanted, room));
  }
  if (build.prefill_length < 1 || build.prefill_length > most) {
    return fail_field(ErrorCode::kUsage, "prefill-length",
                      fmt::format(" {}: must be from 1 to {} with a context of {}",
                                  build.prefill_length, most, build.context_length));
  }
  FERRY_RETURN_IF_ERROR(check_image_call(options, config, build));
  FERRY_RETURN_IF_ERROR(check_two_way_window(config, build));
  build.all_logits = options.all_logits || fixed;
  build.decode_length = options.decode_length.value_or(1);
  if (build.decode_length < 1 || build.decode_length > build.prefill_length) {
    return fail_field(ErrorCode::kUsage, "decode-length",
                      fmt::format(" {}: must be from 1 to the prefill length, {}",
                                  build.decode_length, build.prefill_length));
  }
  build.sound_samples = FERRY_TRY(sound_samples(options, config));
  if (config.audio && config.audio->gemma4) build.sound_frames = most_frames(options, config);
  build.picture = FERRY_TRY(picture_shape(options, config));
  build.placed_rows = is_one_program(options) && build.style == ProgramStyle::kStateful &&
                      config.takes_rows() && converters::has_placed_rows(config) &&
                      (!config.vision || config.vision->max_patches == 0 || build.picture);
  build.source_length = FERRY_TRY(source_length(options, config));
  build.image_patches = FERRY_TRY(image_patches(options, config, build.context_length));
  build.ports = options.ports;
  build.kv_cache = options.kv_cache;
  size_t caches = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    caches += converters::has_cache(config, layer) ? 1 : 0;
  }
  if (is_encoded(build.ports.cache)) {
    build.ports.keys.resize(caches);
    build.ports.values.resize(caches);
    if (build.ports.has_prefill_encodings()) {
      build.ports.prefill_keys.resize(caches);
      build.ports.prefill_values.resize(caches);
    }
  }
  return build;
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

// Returns whether a call has room for an image, where all of its rows are in one.
bool has_room_for_image(const ConvertOptions& options, const converters::ModelConfig& config) {
  const int64_t context =
      options.context_length.value_or(std::min(config.max_positions, kDefaultContext));
  const int64_t most = context - (options.style == ProgramStyle::kStatic ? 1 : 0);
  const int64_t least = with_image(0, options, config, kLeastText);
  return options.prefill_length.value_or(most) >= least && most >= least;
}

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
