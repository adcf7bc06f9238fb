// The decoders behind decode_image, one for each format. Each decoder checks the size in the header
// before it allocates memory, and returns every defect as one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "media/image.h"

namespace ferry::media {

using Bytes = std::span<const std::byte>;

struct Decoded {
  Image image;
  int orientation = 1;  // the EXIF orientation, 1 to 8
};

Result<Decoded> decode_jpeg(Bytes file, const std::string& where);  // libjpeg-turbo, slow IDCT
Result<Decoded> decode_png(Bytes file, const std::string& where);   // libpng
Result<Decoded> decode_webp(Bytes file, const std::string& where);  // libwebp
Result<Decoded> decode_bmp(Bytes file, const std::string& where);
Result<Decoded> decode_pnm(Bytes file, const std::string& where);

// Returns the orientation that an EXIF block states, with or without "Exif\0\0" before it; 1 if it
// states none.
int exif_orientation(Bytes exif);
// Turns and mirrors an image by its EXIF orientation, so that it is as it is meant to be seen.
Image oriented(Image image, int orientation);
// Converts `count` pixels of an Adobe JPEG, whose four components are inverted, as cmyk2rgb in
// Pillow's ImagingConvert does.
void convert_inverted_cmyk(const uint8_t* cmyk, uint8_t* rgb, size_t count);

inline const uint8_t* octets(Bytes bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

}  // namespace ferry::media
