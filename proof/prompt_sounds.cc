#include "proof/prompt_sounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "core/program_interface.h"
#include "proof/row_ports.h"

namespace ferry::proof {
namespace {

constexpr std::string_view kLastState = "encoder_last_hidden_state";

// Reads how many frames of each sound are not padding. These must be the first ones.
Status read_mask(const Reference& reference, const ReferencePrompt& prompt, PromptImages& images) {
  const std::string name(kFramesMask), who = name_of(reference, prompt);
  const int64_t sounds = images.pixel_shape[0], frames = images.pixel_shape[1];
  if (!prompt.has(name)) {
    if (sounds == 1) return {};
    return bad_input(fmt::format("{}: {} sounds without {}", who, sounds, name));
  }
  const std::vector<int64_t> mask = FERRY_TRY(reference.integers(prompt, name, {sounds, frames}));
  for (int64_t sound = 0; sound < sounds; ++sound) {
    const auto own =
        std::span(mask).subspan(static_cast<size_t>(sound * frames), static_cast<size_t>(frames));
    const int64_t shown = std::ranges::find(own, 0) - own.begin();
    const auto is = [](int64_t value) { return [=](int64_t v) { return v == value; }; };
    const auto at = static_cast<size_t>(shown);
    if (shown < 1 || !std::ranges::all_of(own.first(at), is(1)) ||
        !std::ranges::all_of(own.subspan(at), is(0))) {
      return bad_input(
          fmt::format("{}: {}: expected ones and then zeros for sound {}", who, name, sound + 1));
    }
    images.shown_frames.push_back(shown);
  }
  const bool padded =
      std::ranges::any_of(images.shown_frames, [&](int64_t shown) { return shown < frames; });
  if (sounds == 1 && !padded) images.shown_frames.clear();
  if (!padded || images.padded_rows < 1 || images.causal_frames > 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: sounds that are padded, which the model hears, and of whose rows "
                          "the encoder hides some by a mask: not supported",
                          who));
}

}  // namespace

Status read_sounds(const Reference& reference, const ReferencePrompt& prompt,
                   const packer::Manifest& manifest, PromptImages& images) {
  const std::string name(kSoundRows.input);
  const Shape shape = reference.shape(prompt, name);
  Shape expected = tile_shape(manifest, kSoundRows);
  const bool counted = expected.size() == 3 && shape.size() == 3 && manifest.audio_row_frames;
  if (counted) {
    images.row_frames = *manifest.audio_row_frames;
    images.block_rows = manifest.audio_block_rows.value_or(1);
    images.padded_rows = manifest.audio_rows.value_or(0);
    images.causal_frames = manifest.audio_causal_frames.value_or(0);
    if (shape[1] > 0) expected[1] = std::min(expected[1], shape[1]);
  }
  // The mask of Granite Speech is one of rows.
  const bool masked = counted && !manifest.audio_block_rows;
  if ((!counted || masked) && !expected.empty() && !shape.empty() && shape[0] > 0) {
    expected[0] = shape[0];
  }
  if (expected.empty() || shape != expected) {
    return bad_input(fmt::format(
        "{}: {} are {}, the audio encoder takes {} {}", name_of(reference, prompt), name,
        to_string(shape), images.row_frames > 0 ? "sounds of" : "windows of", to_string(expected)));
  }
  images.pixels = FERRY_TRY(reference.floats(prompt, name, shape));
  images.pixel_shape = shape;
  return masked ? read_mask(reference, prompt, images) : Status();
}

runner::SoundSizes sound_sizes(const PromptImages& images) {
  return {.mels = images.pixel_shape[2],
          .row_frames = images.row_frames,
          .padded_rows = images.padded_rows,
          .is_causal = images.causal_frames > 0};
}

std::vector<int64_t> frames_mask(const PromptImages& images) {
  std::vector<int64_t> mask;
  for (const int64_t shown : images.shown_frames) {
    for (int64_t frame = 0; frame < images.pixel_shape[1]; ++frame) mask.push_back(frame < shown);
  }
  return mask;
}

Shape join_sounds(const PromptImages& images, std::string_view name, const Shape& shape,
                  std::vector<float>& values) {
  const int64_t width = shape.back();
  if (images.padded_rows > 0) {
    const int64_t each = name == kLastState ? images.row_frames : images.causal_frames;
    std::vector<float> kept;
    for (size_t sound = 0; sound < images.shown_frames.size(); ++sound) {
      const int64_t shown = images.shown_frames[sound];
      const bool whole = shown == images.pixel_shape[1];
      const int64_t rows = whole ? shape[1] : std::min((shown + each - 1) / each, shape[1]);
      const auto own = std::span(values).subspan(sound * static_cast<size_t>(shape[1] * width),
                                                 static_cast<size_t>(rows * width));
      kept.insert(kept.end(), own.begin(), own.end());
    }
    values = std::move(kept);
  }
  return {1, static_cast<int64_t>(values.size()) / width, width};
}

}  // namespace ferry::proof
