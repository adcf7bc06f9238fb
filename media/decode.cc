#include "media/decode.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/text.h"
#include "media/codecs.h"
#include "media/pixel_values.h"

namespace ferry::media {
namespace {

struct Codec {
  std::string_view magic;
  size_t offset;  // position of the second magic
  std::string_view second;
  Result<Decoded> (*decode)(Bytes, const std::string&);
};

constexpr std::array kCodecs = {
    Codec{"\xFF\xD8\xFF", 0, "", decode_jpeg},
    Codec{"\x89PNG\r\n\x1A\n", 0, "", decode_png},
    Codec{"RIFF", 8, "WEBP", decode_webp},
    Codec{"GIF87a", 0, "", decode_gif},
    Codec{"GIF89a", 0, "", decode_gif},
    Codec{"BM", 0, "", decode_bmp},
    Codec{"P1", 0, "", decode_pnm},
    Codec{"P2", 0, "", decode_pnm},
    Codec{"P3", 0, "", decode_pnm},
    Codec{"P4", 0, "", decode_pnm},
    Codec{"P5", 0, "", decode_pnm},
    Codec{"P6", 0, "", decode_pnm},
};

bool matches(const Codec& codec, std::string_view file) {
  return file.starts_with(codec.magic) &&
         (codec.second.empty() ||
          (file.size() >= codec.offset && file.substr(codec.offset).starts_with(codec.second)));
}

}  // namespace

Result<Image> decode_image(std::span<const std::byte> file, const std::string& where) {
  if (file.empty()) return bad_input(where + ": the file is empty");
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const Codec& codec : kCodecs) {
    if (!matches(codec, text)) continue;
    Decoded decoded = FERRY_TRY(codec.decode(file, where));
    return oriented(std::move(decoded.image), decoded.orientation);
  }
  return fail(ErrorCode::kUnsupported,
              where + ": not a JPEG, PNG, WebP, GIF, BMP, PBM, PGM or PPM image");
}

Result<Image> read_image(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  const std::string where = printable(path);
  if (file.size() > kMaxFileBytes) {
    return bad_input(where + ": the image file has " + human_bytes(file.size()) +
                     "; the limit is " + human_bytes(kMaxFileBytes));
  }
  std::vector<std::byte> bytes(file.size());
  FERRY_RETURN_IF_ERROR(file.read_at(0, bytes));
  return decode_image(bytes, where);
}

Result<Image> read_picture(const std::string& path, const Settings& settings) {
  Image image = FERRY_TRY(read_image(path));
  return settings.converts_rgb ? on_white(std::move(image)) : std::move(image);
}

Image on_white(Image image) {
  if (!image.clear) return image;
  const std::array<uint8_t, 3> clear = *image.clear;
  for (auto at = image.rgb.begin(); at != image.rgb.end(); at += 3) {
    if (std::equal(clear.begin(), clear.end(), at)) std::fill_n(at, 3, uint8_t{255});
  }
  image.clear.reset();
  return image;
}

}  // namespace ferry::media
