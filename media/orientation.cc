// EXIF and XMP: how an image is turned. Pillow reads both (Image.getexif).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "core/checked.h"
#include "media/codecs.h"

namespace ferry::media {
namespace {

// An EXIF block is a TIFF file: a byte order, the offset of a directory, and entries of 12 bytes in
// the directory.
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint64_t kEntryBytes = 12, kInlineBytes = 4;
constexpr std::string_view kPrefix("Exif\0\0", 6);
constexpr std::string_view kXmpTag = "tiff:Orientation";

// The types of TIFF, by their numbers.
enum class TiffKind { kNone, kBytes, kUnsigned, kSigned, kFloat, kRational, kSignedRational };
struct TiffType {
  TiffKind kind;
  uint64_t bytes;
};
constexpr std::array<TiffType, 17> kTypes = {{{TiffKind::kNone, 0},
                                              {TiffKind::kBytes, 1},
                                              {TiffKind::kBytes, 1},
                                              {TiffKind::kUnsigned, 2},
                                              {TiffKind::kUnsigned, 4},
                                              {TiffKind::kRational, 8},
                                              {TiffKind::kSigned, 1},
                                              {TiffKind::kBytes, 1},
                                              {TiffKind::kSigned, 2},
                                              {TiffKind::kSigned, 4},
                                              {TiffKind::kSignedRational, 8},
                                              {TiffKind::kFloat, 4},
                                              {TiffKind::kFloat, 8},
                                              {TiffKind::kUnsigned, 4},
                                              {TiffKind::kNone, 0},
                                              {TiffKind::kNone, 0},
                                              {TiffKind::kUnsigned, 8}}};

class Tiff {
 public:
  explicit Tiff(Bytes bytes) : bytes_(bytes) {}

  bool set_byte_order() {
    const std::optional<uint64_t> mark = number(0, 2);
    big_ = mark == 0x4D4D;
    const std::optional<uint64_t> version = number(2, 2);
    return (mark == 0x4949 || big_) && (version == 42 || version == 42 << 8);
  }
  std::optional<uint64_t> number(uint64_t offset, uint64_t size) const {
    if (!range_inside(offset, size, bytes_.size())) return std::nullopt;
    uint64_t value = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t at = offset + (big_ ? i : size - 1 - i);
      value = value << 8 | static_cast<uint64_t>(bytes_[at]);
    }
    return value;
  }
  // The first value of `type` at an offset; 0 for bytes, which are no number.
  std::optional<double> value(TiffType type, uint64_t offset) const;
  uint64_t size() const { return bytes_.size(); }

 private:
  Bytes bytes_;
  bool big_ = false;
};

double as_signed(uint64_t raw, uint64_t bytes) {
  const uint64_t unused = 64 - 8 * bytes;
  return static_cast<double>(static_cast<int64_t>(raw << unused) >> unused);
}

std::optional<double> Tiff::value(TiffType type, uint64_t offset) const {
  const bool ratio = type.kind == TiffKind::kRational || type.kind == TiffKind::kSignedRational;
  const uint64_t bytes = ratio ? 4 : type.bytes;
  const std::optional<uint64_t> raw = number(offset, bytes);
  if (!raw) return std::nullopt;
  if (type.kind == TiffKind::kBytes) return 0.0;
  if (type.kind == TiffKind::kUnsigned) return static_cast<double>(*raw);
  if (type.kind == TiffKind::kSigned) return as_signed(*raw, bytes);
  if (type.kind == TiffKind::kFloat) {
    return bytes == 8 ? std::bit_cast<double>(*raw)
                      : double{std::bit_cast<float>(static_cast<uint32_t>(*raw))};
  }
  const std::optional<uint64_t> below = number(offset + 4, 4);
  if (!below) return std::nullopt;
  if (type.kind == TiffKind::kSignedRational) return as_signed(*raw, 4) / as_signed(*below, 4);
  return static_cast<double>(*raw) / static_cast<double>(*below);
}

int orientation_from(double value) {
  return value >= 1 && value <= 8 && value == static_cast<int>(value) ? static_cast<int>(value) : 1;
}

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

// Returns the digit behind the first tag that has one, as an attribute or as an element.
int xmp_orientation(std::string_view xmp) {
  for (size_t at = xmp.find(kXmpTag); at != xmp.npos; at = xmp.find(kXmpTag, at + 1)) {
    std::string_view rest = xmp.substr(at + kXmpTag.size());
    const bool attribute = rest.starts_with("=\""), element = rest.starts_with(">");
    if (!attribute && !element) continue;
    rest.remove_prefix(attribute ? 2 : 1);
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return orientation_from(rest[0] - '0');
  }
  return 1;
}

}  // namespace

std::optional<int> exif_orientation(Bytes exif) {
  for (int i = 0; i < 2; ++i) {
    const bool prefix = exif.size() >= kPrefix.size() &&
                        std::memcmp(exif.data(), kPrefix.data(), kPrefix.size()) == 0;
    if (prefix) exif = exif.subspan(kPrefix.size());
  }
  if (exif.empty()) return std::nullopt;
  Tiff tiff(exif);
  if (!tiff.set_byte_order() || !tiff.number(4, 4)) return 1;
  const uint64_t directory = *tiff.number(4, 4);
  const uint64_t count = tiff.number(directory, 2).value_or(0);
  std::set<uint64_t> read;
  uint64_t total = 0;  // bytes of values that are not in their entries
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t entry = directory + 2 + kEntryBytes * i;
    if (!range_inside(entry, kEntryBytes, tiff.size())) break;
    const uint64_t tag = *tiff.number(entry, 2), type = *tiff.number(entry + 2, 2);
    const uint64_t values = *tiff.number(entry + 4, 4);
    if (read.contains(tag) || type >= kTypes.size() || values == 0) continue;
    if (kTypes[type].kind == TiffKind::kNone) continue;
    const uint64_t bytes = values * kTypes[type].bytes;
    const bool apart = bytes > kInlineBytes;
    total += apart ? bytes : 0;
    if (apart && total > tiff.size()) continue;
    const uint64_t at = apart ? *tiff.number(entry + 8, 4) : entry + 8;
    if (!range_inside(at, bytes, tiff.size())) break;
    if (tag == kOrientationTag) return orientation_from(tiff.value(kTypes[type], at).value_or(1));
    read.insert(tag);
  }
  return std::nullopt;
}

int orientation_of(Bytes exif, std::string_view xmp) {
  if (const std::optional<int> stated = exif_orientation(exif)) return *stated;
  return xmp_orientation(xmp);
}

Image oriented(Image image, int orientation) {
  if (orientation <= 1) return image;
  const Turn turn = kTurns[static_cast<size_t>(orientation)];
  const auto [width, height] = image.size;
  Image out = make_image(turn.exchange ? Size{height, width} : Size{width, height});
  out.clear = image.clear;
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
