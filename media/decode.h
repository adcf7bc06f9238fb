// decode_image converts the bytes of an image file to RGB as Pillow 13 does: it opens the file,
// turns the image by its orientation (ImageOps.exif_transpose) and converts it to RGB.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/result.h"
#include "media/image.h"

namespace ferry::media {

// Supports JPEG, PNG, WebP, GIF, BMP (24 bits, uncompressed), PGM and PPM (binary, 8 bits). An
// animation is its first frame, or the picture of a PNG that is no frame.
// Alpha is dropped; a single transparent colour is stated in Image::clear, gray is repeated, and
// CMYK is converted by Pillow's formula; 16-bit gray saturates at 255, and 16-bit colours lose
// their low byte. kBadInput for damaged, truncated and too large images, kUnsupported for other
// formats. `where` begins the messages.
Result<Image> decode_image(std::span<const std::byte> file, const std::string& where);
// Decodes a file of at most kMaxFileBytes.
Result<Image> read_image(const std::string& path);

// Returns an image in which the transparent colour is white, as convert_to_rgb of transformers does
// to a picture that it is given as RGB.
Image on_white(Image image);

}  // namespace ferry::media
