// cut: an image to the tiles that a checkpoint's processor makes of it.
#pragma once

#include <vector>

#include "core/thread_pool.h"
#include "media/image.h"
#include "media/settings.h"
#include "media/tiling.h"

namespace ferry::media {

// Tiles of one size, row by row; the whole picture is the last one if there is a grid of several.
struct TiledImage {
  Grid grid;
  std::vector<Image> tiles;  // each settings.tile wide and high
};

TiledImage cut(const Image& image, const Settings& settings, Backend backend, ThreadPool& pool);

}  // namespace ferry::media
