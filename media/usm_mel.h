// usm_mel() computes the input features of the feature extractor of Gemma 4, which is that of
// Universal Speech Models (arXiv 2303.01037).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::media {

// The settings of the feature extractor, as processor_config.json states them. The defaults are
// those of Gemma4AudioFeatureExtractor.
struct UsmMelSettings {
  int64_t mel_bins = 128;  // feature_size
  int64_t rate = 16000;    // sampling_rate, in Hz
  int64_t frame = 320;     // frame_length_ms, in samples
  int64_t hop = 160;       // hop_length_ms, in samples
  int64_t window = 512;    // of the transform: a power of two, at least `frame`
  double least_hz = 0.0, most_hz = 8000.0;
  double preemphasis = 0.0;     // 0: there is none
  bool htk_preemphasis = true;  // the first sample of a frame is emphasised by itself
  double scale = 1.0;           // input_scale_factor
  double floor = 1e-3;          // mel_floor, added to the mel spectrum
  std::vector<double> means = {}, deviations = {};  // of each bin; empty: 0 and 1

  // The samples of a sound that the extractor looks at: it cuts longer ones.
  static constexpr int64_t kMostSamples = 480000;
  // The fewest samples of which there is a frame.
  int64_t least_samples() const { return frame - frame / 2 + 1; }
  // Returns the frames that the extractor's mask shows, whose samples are all of the sound.
  int64_t frames(int64_t samples) const { return frames_in(std::min(samples, kMostSamples)); }
  // Returns these and the frames that the mask hides, which are of zeros: samples are padded to a
  // multiple of 128.
  int64_t padded_frames(int64_t samples) const {
    return frames_in((std::min(samples, kMostSamples) + 127) / 128 * 128);
  }

 private:
  int64_t frames_in(int64_t samples) const {
    return samples < least_samples() ? 0 : (samples - least_samples()) / hop + 1;
  }
};

// Returns f32 [frames,mel_bins], the frames that the mask shows: logarithms of the mel spectrum of
// magnitudes, behind half a frame of zeros, under a periodic Hann window. `samples` are at
// settings.rate. The reference transforms in f32. This one computes in f64 what is behind frames,
// which are f32 in both, and rounds once.
std::vector<float> usm_mel(std::span<const float> samples, const UsmMelSettings& settings,
                           ThreadPool& pool);

}  // namespace ferry::media
