// Sounds as a model of speech takes them: the settings of its feature extractor, and files as
// input_features or input_values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/sound_settings.h"
#include "packer/bundle_reader.h"

namespace ferry::prompt {

// Returns the settings of the feature extractor of a bundle. kUsage for a bundle without an audio
// encoder, kBadInput if the encoder does not take what the extractor makes; other errors are those
// of media::sound_settings().
Result<media::SoundSettings> sound_settings(const packer::Bundle& bundle);
// Returns the settings of a folder with processor files.
Result<media::SoundSettings> sound_settings(const std::string& directory);

// Returns the frames of a whole sound, f32 [frames,mels]. kUsage if it is too short for a
// deviation, or if the frames would have more than 2^28 values.
Result<std::vector<float>> whole_sound_frames(std::span<const float> samples,
                                              const media::NormalizedMelSettings& settings,
                                              ThreadPool& pool);

// Returns the pairs of frames of a whole sound, f32 [pairs,2 mels]. kUsage if it is too short for a
// pair, or if the pairs would have more than 2^28 values.
Result<std::vector<float>> frame_pairs(std::span<const float> samples,
                                       const media::PairedMelSettings& settings, ThreadPool& pool);

struct PreprocessedSound {
  std::string path;
  int64_t rate = 0, channels = 0;  // of the file
  double seconds = 0;              // duration of the file
  std::string tensor = {};         // input_features or input_values
  // [windows,mels,frames], [1,frames,mels], [1,pairs,2 mels] or [1,samples]
  Shape shape = {};
  // The shape and the name of the mask, where the processor makes one: attention_mask or, for
  // Gemma 4, input_features_mask, [1,frames].
  Shape mask = {};
  std::string mask_name = {};
};

// Writes what the processor makes of a sound file by default, in f32: input_features, padded with
// silence or cut to one window, for Voxtral padded to whole windows, or input_values. Of an
// extractor for whole sounds, attention_mask too, in bool: it hides the last frame, which is of
// zeros. For Gemma 4 input_features_mask hides the frames of padding, and long sounds are cut.
// `output` is the path of a new safetensors file.
Result<PreprocessedSound> preprocess_sound(const std::string& path,
                                           const media::SoundSettings& settings,
                                           const std::string& output, ThreadPool& pool);

}  // namespace ferry::prompt
