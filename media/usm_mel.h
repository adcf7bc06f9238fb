// usm_mel() computes the input features of the feature extractors of Gemma 3n and 4, which are
// those of Universal Speech Models (arXiv 2303.01037).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::media {

// The settings of the feature extractor, as processor_config.json states them. The defaults are
// those of Gemma4AudioFeatureExtractor; gemma3n() has those of Gemma3nAudioFeatureExtractor.
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
  double floor = 1e-3;          // mel_floor, added to the mel spectrum; in Gemma 3n its least value
  std::vector<double> means = {}, deviations = {};  // of each bin; empty: 0 and 1
  // Whether the extractor is that of Gemma 3n: frames begin with the sound and reach into the zeros
  // behind it, and the window is computed in f32.
  bool is_gemma3n = false;

  static UsmMelSettings gemma3n() {
    UsmMelSettings s;
    s.frame = 512;
    s.window = 1024;
    s.least_hz = 125.0;
    s.most_hz = 7600.0;
    s.preemphasis = 0.97;
    s.floor = 1e-5;
    s.is_gemma3n = true;
    return s;
  }

  // The samples of a sound that the extractor looks at: it cuts longer ones.
  static constexpr int64_t kMostSamples = 480000;
  // Samples are padded to a multiple of this.
  static constexpr int64_t kBlock = 128;
  // The fewest samples of which there is a frame.
  int64_t least_samples() const {
    return is_gemma3n ? frame / kBlock * kBlock + 1 : frame - frame / 2 + 1;
  }
  // Returns the samples that the extractor makes of those of one sound.
  static int64_t padded(int64_t samples) {
    return (std::min(samples, kMostSamples) + kBlock - 1) / kBlock * kBlock;
  }
  // Returns the frames that the extractor's mask shows. In Gemma 4 their samples are all of the
  // sound. In Gemma 3n they are all frames, because each is longer than the padding of one sound.
  int64_t frames(int64_t samples) const {
    return is_gemma3n ? padded_frames(samples) : frames_in(std::min(samples, kMostSamples));
  }
  // Returns these and the frames that the mask hides, which are of zeros.
  int64_t padded_frames(int64_t samples) const { return frames_in(padded(samples)); }

 private:
  int64_t frames_in(int64_t samples) const {
    const int64_t least = is_gemma3n ? frame + 1 : frame - frame / 2 + 1;
    return samples < least ? 0 : (samples - least) / hop + 1;
  }
};

// Returns f32 [frames,mel_bins], the frames that the mask shows: logarithms of the mel spectrum of
// magnitudes, in Gemma 4 behind half a frame of zeros, under a periodic Hann window. `samples` are
// at settings.rate. The reference transforms in f32. This one computes in f64 what is behind
// frames, which are f32 in both, and rounds once.
std::vector<float> usm_mel(std::span<const float> samples, const UsmMelSettings& settings,
                           ThreadPool& pool);

}  // namespace ferry::media
