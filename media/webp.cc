#include <webp/decode.h>

#include <cstring>

#include "core/checked.h"
#include "media/codecs.h"

namespace ferry::media {
namespace {

constexpr size_t kRiffHeader = 12, kChunkHeader = 8;

uint32_t little32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

int exif_orientation_of(Bytes file) {
  uint64_t at = kRiffHeader;
  while (range_inside(at, kChunkHeader, file.size())) {
    const uint64_t size = little32(octets(file) + at + 4);
    const uint64_t data = at + kChunkHeader;
    if (!range_inside(data, size, file.size())) return 1;
    if (std::memcmp(octets(file) + at, "EXIF", 4) == 0) {
      return exif_orientation(file.subspan(data, size));
    }
    at = align_up(data + size, 2);
  }
  return 1;
}

}  // namespace

Result<Decoded> decode_webp(Bytes file, const std::string& where) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(octets(file), file.size(), &features) != VP8_STATUS_OK) {
    return bad_input(where + ": damaged WebP: its header cannot be read");
  }
  FERRY_RETURN_IF_ERROR(check_size(features.width, features.height, where));
  if (features.has_animation) {
    return fail(ErrorCode::kUnsupported, where + ": animated WebP");
  }
  Decoded out{make_image({features.width, features.height}), exif_orientation_of(file)};
  if (!WebPDecodeRGBInto(octets(file), file.size(), out.image.rgb.data(), out.image.rgb.size(),
                         static_cast<int>(out.image.row_bytes()))) {
    return bad_input(where + ": damaged WebP: its pixels cannot be read");
  }
  return out;
}

}  // namespace ferry::media
