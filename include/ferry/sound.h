// Sound: what models of speech, and language models that hear, take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

// A WAV or FLAC file, or samples: exactly one of `path` and `samples`.
struct Sound {
  std::string path = {};
  // Samples of one channel; integers of files become values in [-1, 1). They must be finite.
  std::vector<float> samples = {};
  int64_t rate = 0;  // samples a second, 1,000 to 768,000; 0 with `path`
};

}  // namespace v0
}  // namespace ferry
