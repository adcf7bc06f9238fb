// Target sizes and grids, in the doubles of the reference (transformers 5.12.1).
#pragma once

#include "media/image.h"

namespace ferry::media {

struct Grid {
  int columns = 0, rows = 0;  // 0: one tile that is no part of a grid
  bool operator==(const Grid&) const = default;
};

// Idefics3: the size whose longer side is `longest_edge`; the other side is even.
Size idefics3_size(Size image, int longest_edge);
// Idefics3: that size grown to whole tiles of a side.
Size idefics3_canvas(Size size, int tile);
// Idefics3: the tiles of a canvas.
Grid idefics3_grid(Size canvas, int tile);

// GotOcr2 (InternVL): the grid of `least` to `most` tiles whose shape is nearest to the image's.
Grid gotocr2_grid(Size image, int tile, int least, int most);

}  // namespace ferry::media
