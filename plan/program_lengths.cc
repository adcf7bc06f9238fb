#include "plan/program_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "converters/blocks/conformer.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/rope.h"
#include "converters/blocks/sentence.h"
#include "converters/blocks/static_ports.h"
#include "core/text.h"
#include "plan/endless.h"
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
// The feature extractors of Gemma 3n and 4 cut sounds to so many.
constexpr int64_t kMostUsmSeconds = 30;
// The answers of encoder-decoders begin with a token or two, and biases by distance take memory for
// every token of a call and position of the context.
constexpr int64_t kDefaultSourceLength = 512, kDefaultAnswerLength = 512, kDefaultAnswerCall = 32;
// Matrices are as fast with more rows, and masks take memory with the square of the tokens.
constexpr int64_t kTextsLength = 512;

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

// Returns the frames of a second, or their pairs where these are what an encoder counts.
int64_t frame_rate(const converters::ModelConfig& config) {
  const bool pairs = config.audio->granite.has_value();
  return converters::kFrameRate / (pairs ? converters::GraniteAudioConfig::kStack : 1);
}

// Returns the most of them in a sound.
int64_t most_frames(const ConvertOptions& options, const converters::ModelConfig& config) {
  const int64_t otherwise = config.audio->usm ? kMostUsmSeconds : kDefaultSoundSeconds;
  return options.max_sound.value_or(otherwise) * frame_rate(config);
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
    return fail_field(
        ErrorCode::kUsage, "prefill-length",
        fmt::format(" {}: the {} rows of a {}sound of {} are tokens of one call",
                    build.prefill_length, least,
                    config.audio->makes_rows_of_frames() ? "" : "window of ", config.model_type));
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
  if (!config.audio->usm || *options.max_sound <= kMostUsmSeconds) return int64_t{0};
  return fail_field(ErrorCode::kUsage, "max-sound",
                    fmt::format(" {}: the feature extractor of {} cuts sounds to {} seconds",
                                *options.max_sound, config.model_type, kMostUsmSeconds));
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

}  // namespace

int64_t rows_of_sound(const ConvertOptions& options, const converters::ModelConfig& config) {
  if (!config.audio->makes_rows_of_frames()) return config.audio->row_count();
  return config.audio->rows_of(most_frames(options, config));
}

bool has_room_for_image(const ConvertOptions& options, const converters::ModelConfig& config) {
  const int64_t context =
      options.context_length.value_or(std::min(config.max_positions, kDefaultContext));
  const int64_t most = context - (options.style == ProgramStyle::kStatic ? 1 : 0);
  const int64_t least = with_image(0, options, config, kLeastText);
  return options.prefill_length.value_or(most) >= least && most >= least;
}

Result<converters::BuildOptions> settle_lengths(const ConvertOptions& options,
                                                const converters::ModelConfig& config) {
  if (config.audio && config.audio->conformer) return settle_sound_encoder(options, config);
  converters::BuildOptions build;
  if (options.attention_sink) return settle_endless(options, config);
  if (options.text_positions) {
    return fail_field(ErrorCode::kUsage, "sink-positions", ": only with attention-sink");
  }
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
  if (config.audio && config.audio->makes_rows_of_frames()) {
    build.sound_frames = most_frames(options, config);
    build.frame_rate = frame_rate(config);
  }
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

}  // namespace ferry::plan
