#include "media/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "core/file.h"
#include "core/text.h"
#include "media/codecs.h"

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
    Codec{"BM", 0, "", decode_bmp},
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
              where + ": not a JPEG, PNG, WebP, BMP or binary PGM or PPM image");
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

namespace {

// An EXIF block is a TIFF file: a byte order, the offset of a directory, and entries of 12 bytes in
// the directory.
constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;
constexpr std::string_view kPrefix("Exif\0\0", 6);

class Tiff {
 public:
  explicit Tiff(Bytes bytes) : bytes_(bytes) {}

  bool set_byte_order() {
    const std::optional<uint32_t> mark = number(0, 2);
    big_ = mark == 0x4D4D;
    return (mark == 0x4949 || big_) && number(2, 2) == 42;
  }
  std::optional<uint32_t> number(uint64_t offset, uint64_t size) const {
    if (!range_inside(offset, size, bytes_.size())) return std::nullopt;
    uint32_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t at = offset + (big_ ? i : size - 1 - i);
      value = value << 8 | static_cast<uint32_t>(bytes_[at]);
    }
    return value;
  }

 private:
  Bytes bytes_;
  bool big_ = false;
};

// Maps a pixel (x, y) of the result to its pixel in the source: the coordinates are exchanged
// first, then mirrored.
struct Turn {
  bool exchange, mirror_x, mirror_y;
};
constexpr std::array<Turn, 9> kTurns = {{{},
                                         {},
                                         {false, true, false},
                                         {false, true, true},
                                         {false, false, true},
                                         {true, false, false},
                                         {true, false, true},
                                         {true, true, true},
                                         {true, true, false}}};

}  // namespace

int exif_orientation(Bytes exif) {
  while (exif.size() >= kPrefix.size() &&
         std::memcmp(exif.data(), kPrefix.data(), kPrefix.size()) == 0) {
    exif = exif.subspan(kPrefix.size());
  }
  Tiff tiff(exif);
  if (!tiff.set_byte_order()) return 1;
  const std::optional<uint32_t> directory = tiff.number(4, 4);
  const uint32_t count = directory ? tiff.number(*directory, 2).value_or(0) : 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t entry = uint64_t{*directory} + 2 + uint64_t{12} * i;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = tiff.number(entry + 8, 2).value_or(1);
    const bool known = tiff.number(entry + 2, 2) == kShort && value >= 1 && value <= 8;
    return known ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image oriented(Image image, int orientation) {
  if (orientation <= 1) return image;
  const Turn turn = kTurns[static_cast<size_t>(orientation)];
  const auto [width, height] = image.size;
  Image out = make_image(turn.exchange ? Size{height, width} : Size{width, height});
  for (int y = 0; y < out.size.height; ++y) {
    uint8_t* to = out.row(y);
    for (int x = 0; x < out.size.width; ++x, to += 3) {
      const int sx = turn.exchange ? y : x, sy = turn.exchange ? x : y;
      const uint8_t* from = image.row(turn.mirror_y ? height - 1 - sy : sy) +
                            ptrdiff_t{3} * (turn.mirror_x ? width - 1 - sx : sx);
      std::copy(from, from + 3, to);
    }
  }
  return out;
}

}  // namespace ferry::media
