// Target sizes and grids, computed in f64 as in the reference (transformers 5.12.1).
#pragma once

#include "media/image.h"

namespace ferry::media {

struct Grid {
  int columns = 0, rows = 0;  // both 0 for a single tile that is not part of a grid
  bool operator==(const Grid&) const = default;
};

// For Idefics3: returns the size whose longer side is `longest_edge`; the other side is even.
Size idefics3_size(Size image, int longest_edge);
// For Idefics3: returns `size` with both sides increased to multiples of `tile`.
Size idefics3_canvas(Size size, int tile);
// For Idefics3: returns the grid of the tiles of a canvas.
Grid idefics3_grid(Size canvas, int tile);

// For GotOcr2 (InternVL): returns the grid of `least` to `most` tiles whose shape is nearest to
// that of the image.
Grid gotocr2_grid(Size image, int tile, int least, int most);

}  // namespace ferry::media
