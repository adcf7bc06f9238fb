// cut divides an image into tiles as a checkpoint's processor does.
#pragma once

#include <vector>

#include "core/thread_pool.h"
#include "media/image.h"
#include "media/settings.h"
#include "media/tiling.h"

namespace ferry::media {

// Tiles of one size, row by row. If there is a grid of several tiles, the whole picture is the last
// tile.
struct TiledImage {
  Grid grid;
  std::vector<Image> tiles;  // each settings.tile wide and high
};

TiledImage cut(const Image& image, const Settings& settings, Backend backend, ThreadPool& pool);

}  // namespace ferry::media
