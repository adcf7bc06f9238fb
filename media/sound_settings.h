// sound_settings() reads how the feature extractor of a checkpoint makes the input of a model of
// speech: as log-mel frames of a window, as frames of the whole sound, or as samples.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "core/result.h"
#include "media/log_mel.h"
#include "media/normalized_mel.h"
#include "media/paired_mel.h"
#include "media/usm_mel.h"
#include "media/waveform.h"

namespace ferry::media {

using SoundSettings = std::variant<LogMelSettings, WaveformSettings, NormalizedMelSettings,
                                   UsmMelSettings, PairedMelSettings>;

// Returns the sampling rate of the model, in Hz.
int64_t rate_of(const SoundSettings& settings);

// Returns the settings that the processor files of a checkpoint state: the member feature_extractor
// or audio_processor of processor_config.json if there is one, otherwise preprocessor_config.json.
// An empty text stands for an absent file; kIo if both are absent. kUnsupported, with the name, for
// other classes, fields and values. `directory` begins the messages.
Result<SoundSettings> sound_settings(std::string_view preprocessor, std::string_view processor,
                                     const std::string& directory);

}  // namespace ferry::media
