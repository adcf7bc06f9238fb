// prove_pixels() is the first stage of a proof with images. It compares the pixel values that the
// bundle's own processor makes of image files with those of a reference.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/parity.h"
#include "proof/reference.h"

namespace ferry::proof {

// The largest accepted difference of a pixel value. One of 256 levels is at least 0.008, and the
// order of arithmetic changes values by 2.4e-7.
inline constexpr double kPixelTolerance = 1e-6;

struct PixelProof {
  std::string prompt;
  size_t images = 0;
  int64_t tiles = 0;
  ValueMetrics metrics;
  bool within = true;
};

// `images` has "PROMPT=FILE", or "FILE" for a reference with one prompt; the images of a prompt are
// in order. kUsage for a prompt that the reference does not have or that has no pixel_values;
// kBadInput if the files give another number of values.
Result<std::vector<PixelProof>> prove_pixels(const packer::Bundle& bundle,
                                             const Reference& reference,
                                             const std::vector<std::string>& images,
                                             ThreadPool& pool);

}  // namespace ferry::proof
