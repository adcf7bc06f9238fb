// LogMel computes the input features of Whisper's feature extractor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::media {

// The settings of a feature extractor, as preprocessor_config.json states them. The defaults are
// those of WhisperFeatureExtractor.
struct LogMelSettings {
  int64_t mel_bins = 80;       // feature_size
  int64_t rate = 16000;        // sampling_rate, in Hz
  int64_t hop = 160;           // hop_length, in samples
  int64_t chunk_seconds = 30;  // chunk_length
  int64_t window = 400;        // n_fft, in samples
  float padding = 0.0F;        // padding_value
  // Sounds are padded to whole chunks and never cut (VoxtralProcessor).
  bool whole_sounds = false;

  int64_t chunk_samples() const { return chunk_seconds * rate; }
  int64_t chunk_frames() const { return chunk_samples() / hop; }
};

struct Features {
  int64_t mel_bins = 0, frames = 0;
  std::vector<float> values;  // [mel_bins, frames]
};

// Computes log10 of the mel spectrum (Hann window, frames centred on multiples of the hop, the ends
// mirrored), at least 8 below its maximum, plus 4, over 4. `samples` are at settings.rate, more
// than half a window, and the result has a frame for each whole hop. The mel scale is Slaney's,
// from 0 to 8000 Hz. Sums are f64 as in the numpy path of transformers (audio_utils.spectrogram),
// and are rounded to f32 where it rounds.
Features log_mel(std::span<const float> samples, const LogMelSettings& settings, ThreadPool& pool);

// Returns how many chunks so many samples are padded to, at least one.
int64_t window_count(int64_t samples, const LogMelSettings& settings);

// Computes the frames of samples that are padded to whole chunks. `values` has a
// chunk behind the other, each [mel_bins,chunk_frames()]; the loudest frame of all sets the floor.
// `frames` counts those of all chunks.
Features all_windows(std::vector<float> samples, const LogMelSettings& settings, ThreadPool& pool);

// Pads or cuts samples to one chunk, as the processor does unless it is told otherwise.
std::vector<float> one_chunk(std::span<const float> samples, const LogMelSettings& settings);

}  // namespace ferry::media
