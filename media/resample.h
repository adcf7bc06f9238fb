// resize reproduces the two fixed-point resamplers of Hugging Face's image processors, bit for bit.
#pragma once

#include "core/thread_pool.h"
#include "media/image.h"

namespace ferry::media {

// The implementation whose arithmetic is used: torchvision 0.27 (uint8, antialiased, weights of 16
// bits) or Pillow 13 (weights of 22 bits; the vertical pass comes first if that is less work).
enum class Backend { kTorchvision, kPil };
// Lanczos with a = 3, bicubic with a = -0.5.
enum class Filter { kLanczos, kBicubic, kBilinear };

// Resizes with antialiasing, horizontally and vertically, and rounds to 8 bits after each pass. A
// pass that does not change the size is left out.
Image resize(const Image& image, Size size, Filter filter, Backend backend, ThreadPool& pool);

}  // namespace ferry::media
