// WebP: libwebp decodes the bitstreams. The container is read here, because an animation is decoded
// as its first frame on a black canvas, which is what Pillow shows. Source: WebP Container
// Specification.
#include <webp/decode.h>

#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "media/codecs.h"
#include "media/little_endian.h"

namespace ferry::media {
namespace {

constexpr size_t kRiffHeader = 12, kChunkHeader = 8, kFrameHeader = 16;

// The first chunk of each name that the container has beside the pixels.
struct WebpChunks {
  Bytes exif, frame;
  std::string_view xmp;
  bool whole = true;  // every chunk ends inside of the file
};

WebpChunks chunks_of(Bytes file) {
  WebpChunks out;
  const uint64_t stated = kChunkHeader + little_endian(file, 4, 4);
  out.whole = stated <= file.size();
  file = file.first(std::min<uint64_t>(stated, file.size()));
  for (uint64_t at = kRiffHeader; range_inside(at, kChunkHeader, file.size());) {
    const uint64_t size = little_endian(file, at + 4, 4), data = at + kChunkHeader;
    if (!range_inside(data, size, file.size())) {
      out.whole = false;
      break;
    }
    const Bytes chunk = file.subspan(data, size);
    const std::string_view tag(reinterpret_cast<const char*>(octets(file)) + at, 4);
    if (tag == "EXIF" && out.exif.empty()) out.exif = chunk;
    if (tag == "ANMF" && out.frame.empty()) out.frame = chunk;
    if (tag == "XMP " && out.xmp.empty()) {
      out.xmp = {reinterpret_cast<const char*>(octets(chunk)), chunk.size()};
    }
    at = align_up(data + size, 2);
  }
  return out;
}

Failure damaged_webp(const std::string& where, const char* what) {
  return bad_input(where + ": damaged WebP: " + what);
}

Status draw_first_frame(const WebpChunks& chunks, Image& canvas, const std::string& where) {
  if (chunks.frame.size() < kFrameHeader) return damaged_webp(where, "an animation of no frames");
  const uint64_t left = 2 * little_endian(chunks.frame, 0, 3);
  const uint64_t top = 2 * little_endian(chunks.frame, 3, 3);
  const uint64_t width = 1 + little_endian(chunks.frame, 6, 3);
  const uint64_t height = 1 + little_endian(chunks.frame, 9, 3);
  if (!range_inside(left, width, static_cast<uint64_t>(canvas.size.width)) ||
      !range_inside(top, height, static_cast<uint64_t>(canvas.size.height))) {
    return damaged_webp(where, "a frame that is not inside of the canvas");
  }
  const Bytes pixels = chunks.frame.subspan(kFrameHeader);
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(octets(pixels), pixels.size(), &features) != VP8_STATUS_OK ||
      static_cast<uint64_t>(features.width) != width ||
      static_cast<uint64_t>(features.height) != height) {
    return damaged_webp(where, "the header of its first frame cannot be read");
  }
  const size_t skipped = canvas.row_bytes() * top + 3 * left;
  if (!WebPDecodeRGBInto(octets(pixels), pixels.size(), canvas.rgb.data() + skipped,
                         canvas.rgb.size() - skipped, static_cast<int>(canvas.row_bytes()))) {
    return damaged_webp(where, "the pixels of its first frame cannot be read");
  }
  return {};
}

}  // namespace

Result<Decoded> decode_webp(Bytes file, const std::string& where) {
  WebPBitstreamFeatures features;
  if (file.size() < kRiffHeader ||
      WebPGetFeatures(octets(file), file.size(), &features) != VP8_STATUS_OK) {
    return damaged_webp(where, "its header cannot be read");
  }
  FERRY_RETURN_IF_ERROR(check_size(features.width, features.height, where));
  const WebpChunks chunks = chunks_of(file);
  if (!chunks.whole) return damaged_webp(where, "the file ends early");
  Decoded out{make_image({features.width, features.height}),
              orientation_of(chunks.exif, chunks.xmp)};
  if (features.has_animation) {
    FERRY_RETURN_IF_ERROR(draw_first_frame(chunks, out.image, where));
  } else if (!WebPDecodeRGBInto(octets(file), file.size(), out.image.rgb.data(),
                                out.image.rgb.size(), static_cast<int>(out.image.row_bytes()))) {
    return damaged_webp(where, "its pixels cannot be read");
  }
  return out;
}

}  // namespace ferry::media
