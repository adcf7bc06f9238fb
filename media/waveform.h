// waveform() makes the input values of a model that takes samples, as Wav2Vec2FeatureExtractor of
// transformers does for one sound, which it neither pads nor cuts.
#pragma once

#include <cstdint>
#include <vector>

namespace ferry::media {

// The settings of the feature extractor. The defaults are those of the class.
struct WaveformSettings {
  int64_t rate = 16000;   // sampling_rate, in Hz
  bool normalize = true;  // do_normalize: to a mean of 0 and a variance of 1
};

// Takes samples at settings.rate. Sums are those of numpy in f32, pairwise, so that normalised
// samples are its bits.
std::vector<float> waveform(std::vector<float> samples, const WaveformSettings& settings);

}  // namespace ferry::media
