// Sounds as a model of speech takes them: the settings of its feature extractor, and files as
// input_features or input_values.
#pragma once

#include <cstdint>
#include <string>

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

struct PreprocessedSound {
  std::string path;
  int64_t rate = 0, channels = 0;  // of the file
  double seconds = 0;              // duration of the file
  std::string tensor = {};         // input_features or input_values
  Shape shape = {};                // [1,mels,frames] or [1,samples]
};

// Writes what the processor makes of a sound file by default, in f32: input_features, padded with
// silence or cut to one window, or input_values. `output` is the path of a new safetensors file.
Result<PreprocessedSound> preprocess_sound(const std::string& path,
                                           const media::SoundSettings& settings,
                                           const std::string& output, ThreadPool& pool);

}  // namespace ferry::prompt
