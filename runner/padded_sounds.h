// rows_of_sounds() encodes the sounds of one prompt, which their feature extractor padded to equal
// numbers of frames.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"

namespace ferry::runner {

struct SoundSizes {
  int64_t mels = 0;         // values of a frame
  int64_t row_frames = 0;   // frames of a row
  int64_t padded_rows = 0;  // the rows of every sound, whose model hears padding behind it; else 0
  bool is_causal = false;   // whether rows of such a sound depend on no row behind them
};

// Encodes the frames of one sound. The outputs of a call that is made `aside` are not those of a
// sound of the prompt, and probes of it do not count. It comes before the others.
using EncodeFrames =
    std::function<Result<std::vector<float>>(std::span<const float> frames, bool aside)>;

// Returns the rows of all sounds, f32 [rows,row width]. `frames` are f32 [sounds,F,mels], and
// `shown` says how many of each sound are not padding: 1 to F. Where the model hears padding, the
// encoder must be causal: the rows of the sound are then the first ones of the padded sound, and
// those behind them are the rows that the encoder makes of no frames. kUnsupported otherwise,
// kUsage for other sizes.
Result<std::vector<float>> rows_of_sounds(const SoundSizes& sizes, std::span<const float> frames,
                                          std::span<const int64_t> shown,
                                          const EncodeFrames& encode);

}  // namespace ferry::runner
