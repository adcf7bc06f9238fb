// An EXIF block is a TIFF file: a byte order, the offset of a directory, and entries of 12 bytes in
// the directory.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "core/checked.h"
#include "media/codecs.h"

namespace ferry::media {
namespace {

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
