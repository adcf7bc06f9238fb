// normalized_mel() computes the input features of Parakeet's feature extractor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::media {

// The settings of the feature extractor, as preprocessor_config.json states them. The defaults are
// those of ParakeetFeatureExtractor.
struct NormalizedMelSettings {
  int64_t mel_bins = 80;                     // feature_size
  int64_t rate = 16000;                      // sampling_rate, in Hz
  int64_t hop = 160;                         // hop_length, in samples
  int64_t window = 512;                      // n_fft, in samples
  int64_t inner_window = 400;                // win_length, in samples: at most `window`
  std::optional<double> preemphasis = 0.97;  // nullopt: there is none

  // The frames that the extractor's mask shows: one for each whole hop. One more follows them, of
  // zeros.
  int64_t frames(int64_t samples) const { return samples / hop; }
};

// The fewest frames that have a deviation.
inline constexpr int64_t kLeastNormalizedFrames = 2;

// Returns f32 [frames,mel_bins]: logarithms of the mel spectrum of `samples`, each bin with a mean
// of 0 and a deviation of 1 over the frames. Samples become differences to `preemphasis` times the
// one before. Frames are centred on multiples of the hop, with zeros at both ends, under a
// symmetric Hann window in the middle of the transform. `samples` are at settings.rate and have
// kLeastNormalizedFrames frames. All is computed in f64 and rounded at the end; the filters are
// f32, as in the reference, which computes the rest in f32 too.
std::vector<float> normalized_mel(std::span<const float> samples,
                                  const NormalizedMelSettings& settings, ThreadPool& pool);

}  // namespace ferry::media
