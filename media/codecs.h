// The decoders behind decode_image, one for each format. Each decoder checks the size in the header
// before it allocates memory, and returns every defect as one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

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
Result<Decoded> decode_gif(Bytes file, const std::string& where);
Result<Decoded> decode_bmp(Bytes file, const std::string& where);
Result<Decoded> decode_pnm(Bytes file, const std::string& where);

// Returns the orientation that an EXIF block states, with or without "Exif\0\0" before it. A value
// other than 1 to 8, and a block that is no TIFF file, is 1.
std::optional<int> exif_orientation(Bytes exif);
// Returns the orientation of a file: that of its EXIF block, and without one that of its XMP; 1 if
// neither states it. Either may be empty.
int orientation_of(Bytes exif, std::string_view xmp);
// Turns and mirrors an image by its EXIF orientation, so that it is as it is meant to be seen.
Image oriented(Image image, int orientation);
// Converts `count` pixels of an Adobe JPEG, whose four components are inverted, as cmyk2rgb in
// Pillow's ImagingConvert does.
void convert_inverted_cmyk(const uint8_t* cmyk, uint8_t* rgb, size_t count);

inline const uint8_t* octets(Bytes bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

}  // namespace ferry::media
