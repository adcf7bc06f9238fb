// Sounds as a model of speech takes them: the settings of its feature extractor, and files as
// input_features.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/log_mel.h"
#include "packer/bundle_reader.h"

namespace ferry::prompt {

// Returns the settings of the feature extractor of a bundle. kUsage for a bundle without an audio
// encoder, kBadInput if the encoder does not take what the extractor makes; other errors are those
// of log_mel_settings().
Result<media::LogMelSettings> sound_settings(const packer::Bundle& bundle);
// Returns the settings of a folder with processor files.
Result<media::LogMelSettings> sound_settings(const std::string& directory);

struct PreprocessedSound {
  std::string path;
  int64_t rate = 0, channels = 0;  // of the file
  double seconds = 0;              // duration of the file
  Shape input_features = {};       // [1,mels,frames]
};

// Writes input_features (f32) of a sound file as the processor makes them by default: padded with
// silence or cut to one window. `output` is the path of a new safetensors file.
Result<PreprocessedSound> preprocess_sound(const std::string& path,
                                           const media::LogMelSettings& settings,
                                           const std::string& output, ThreadPool& pool);

}  // namespace ferry::prompt
