// paired_mel() computes the input features of Granite Speech's feature extractor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::media {

// The settings of the feature extractor, as processor_config.json states them. The defaults are
// those of GraniteSpeechFeatureExtractor.
struct PairedMelSettings {
  int64_t mel_bins = 80;          // n_mels
  int64_t rate = 16000;           // sampling_rate, in Hz
  int64_t hop = 160;              // hop_length, in samples
  int64_t window = 512;           // n_fft, in samples: even
  int64_t inner_window = 400;     // win_length, in samples: at most `window`
  int64_t projector_window = 15;  // projector_window_size, in pairs
  int64_t projector_rate = 5;     // projector_downsample_rate

  // The fewest samples of which there is a pair of frames: the ends are mirrored.
  int64_t least_samples() const { return window / 2 + 1 > hop ? window / 2 + 1 : hop; }
  // Returns the pairs of frames of so many samples. A frame without another is left out.
  int64_t pairs(int64_t samples) const {
    return samples < least_samples() ? 0 : frames(samples) / 2;
  }
  int64_t frames(int64_t samples) const { return samples / hop + 1; }
  // The values of a pair.
  int64_t pair_values() const { return 2 * mel_bins; }
};

// Returns f32 [pairs,2 mel_bins]: log10 of the mel spectrum of powers, at least 8 below its
// maximum, over 4, plus 1. Frames are centred on multiples of the hop, with mirrored ends, under a
// periodic Hann window in the middle of the transform. `samples` are at settings.rate, and at least
// settings.least_samples(). All is computed in f64 and rounded at the end; the filters are f32, as
// in the reference, which computes the rest in f32 too.
std::vector<float> paired_mel(std::span<const float> samples, const PairedMelSettings& settings,
                              ThreadPool& pool);

}  // namespace ferry::media
