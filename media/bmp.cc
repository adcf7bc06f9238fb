// BMP, as Pillow's BmpImagePlugin reads it: all depths and headers, masks of 16 and 32 bits, RLE.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/checked.h"
#include "media/codecs.h"
#include "media/little_endian.h"

namespace ferry::media {
namespace {

constexpr uint64_t kFileHeader = 14;
constexpr uint64_t kCoreHeader = 12;  // of OS/2, whose sizes have 16 bits
constexpr uint64_t kInfoHeader = 40;
constexpr std::array<uint64_t, 7> kHeaders = {kCoreHeader, kInfoHeader, 52, 56, 64, 108, 124};
constexpr uint64_t kPlain = 0, kRle8 = 1, kRle4 = 2, kMasked = 3;
constexpr uint64_t kMostColours = 65536;

using Masks = std::array<uint64_t, 4>;  // of red, green, blue and alpha

// Where a pixel of whole bytes has its colours.
struct ByteOrder {
  Masks masks;
  int red, green, blue;
  bool same_in_memory = false;  // Pillow maps such a file, which must have the padding of its end
};
// Masks of other orders are refused, as by Pillow.
constexpr ByteOrder kOrders[] = {
    {{0xFF0000, 0xFF00, 0xFF, 0x0}, 2, 1, 0},
    {{0xFF000000, 0xFF0000, 0xFF00, 0x0}, 3, 2, 1},
    {{0xFF000000, 0xFF00, 0xFF, 0x0}, 3, 1, 0},
    {{0xFF000000, 0xFF0000, 0xFF00, 0xFF}, 3, 2, 1},
    {{0xFF, 0xFF00, 0xFF0000, 0xFF000000}, 0, 1, 2, true},
    {{0xFF0000, 0xFF00, 0xFF, 0xFF000000}, 2, 1, 0},
    {{0xFF000000, 0xFF00, 0xFF, 0xFF0000}, 3, 1, 0},
    {{0x0, 0x0, 0x0, 0x0}, 2, 1, 0},
};
constexpr Masks kMasks24 = {0xFF0000, 0xFF00, 0xFF, 0x0};
constexpr Masks kMasks565 = {0xF800, 0x7E0, 0x1F, 0x0}, kMasks555 = {0x7C00, 0x3E0, 0x1F, 0x0};

// The kinds of pixels of a file.
enum class BmpPixels : uint8_t {
  kBits,     // one bit: black or white
  kGray,     // one byte: a level of gray
  kIndices,  // 1, 4 or 8 bits: an index of the table
  kWord555,  // 16 bits
  kWord565,  //
  kBytes24,  // blue, green, red
  kBytes32,  // four bytes in `order`
};

struct BmpHeader {
  uint64_t size = 0;  // of the header behind that of the file
  uint64_t width = 0, height = 0;
  bool top_down = false;
  uint64_t bits = 0, compression = kPlain, colours = 0;
  uint64_t colour_bytes = 4;  // of an entry of the table
  uint64_t pixels = 0;        // position in the file
  uint64_t table = 0;         // likewise
  Masks masks = {};
};

class BmpFile {
 public:
  BmpFile(Bytes file, const std::string& where) : file_(file), where_(where) {}

  Result<Decoded> decode() {
    FERRY_RETURN_IF_ERROR(read_header());
    FERRY_RETURN_IF_ERROR(
        check_size(static_cast<int64_t>(h_.width), static_cast<int64_t>(h_.height), where_));
    FERRY_RETURN_IF_ERROR(read_kind());
    if (h_.compression == kRle8 || h_.compression == kRle4) return decode_runs();
    return decode_rows();
  }

 private:
  Failure damaged(const char* what) const { return bad_input(where_ + ": damaged BMP: " + what); }
  Failure early() const { return damaged("the file ends early"); }
  Failure unsupported(const char* what) const {
    return fail(ErrorCode::kUnsupported, where_ + ": BMP with " + what);
  }
  uint64_t number(uint64_t at, int bytes) const { return little_endian(file_, at, bytes); }

  Status read_header() {
    if (file_.size() < kFileHeader + 4) return early();
    h_.size = number(kFileHeader, 4);
    if (std::ranges::find(kHeaders, h_.size) == kHeaders.end()) {
      return unsupported("a header of a size that is not known");
    }
    if (file_.size() < kFileHeader + h_.size) return early();
    h_.pixels = number(10, 4);
    h_.table = kFileHeader + h_.size;
    h_.size == kCoreHeader ? read_core_header() : read_info_header();
    if (h_.colours == 0) h_.colours = uint64_t{1} << std::min<uint64_t>(h_.bits, 32);
    if (h_.compression == kMasked) FERRY_RETURN_IF_ERROR(read_masks());
    if (h_.pixels == kFileHeader + h_.size && h_.bits <= 8) {
      h_.pixels += h_.colour_bytes * h_.colours;
    }
    return {};
  }
  void read_core_header() {
    h_.width = number(18, 2);
    h_.height = number(20, 2);
    h_.bits = number(24, 2);
    h_.colour_bytes = 3;
  }
  void read_info_header() {
    h_.width = number(18, 4);
    h_.height = number(22, 4);
    h_.top_down = number(25, 1) == 0xFF;
    if (h_.top_down) h_.height = (uint64_t{1} << 32) - h_.height;
    h_.bits = number(28, 2);
    h_.compression = number(30, 4);
    h_.colours = number(46, 4);
  }
  // A header of 40 bytes has the masks behind it.
  Status read_masks() {
    const size_t own = h_.size >= 56 ? 4 : 3;
    if (h_.size == kInfoHeader) h_.table += 12;
    if (file_.size() < kFileHeader + kInfoHeader + 4 * own) return early();
    for (size_t i = 0; i < own; ++i) h_.masks[i] = number(kFileHeader + kInfoHeader + 4 * i, 4);
    return {};
  }

  Status read_kind() {
    constexpr std::array<uint64_t, 6> kDepths = {1, 4, 8, 16, 24, 32};
    if (std::ranges::find(kDepths, h_.bits) == kDepths.end()) {
      return unsupported("a depth other than 1, 4, 8, 16, 24 and 32 bits");
    }
    if (h_.compression > kMasked) return unsupported("another compression");
    if (h_.bits <= 8) return read_table();
    kind_ = h_.bits == 16   ? BmpPixels::kWord555
            : h_.bits == 24 ? BmpPixels::kBytes24
                            : BmpPixels::kBytes32;
    if (h_.compression == kMasked) return read_order();
    return h_.compression == kPlain ? Status() : unsupported("runs of colours without a table");
  }
  Status read_order() {
    Masks colours = h_.masks;
    if (h_.bits < 32) colours[3] = 0;
    if (h_.bits == 32) {
      const auto found = std::ranges::find(kOrders, h_.masks, &ByteOrder::masks);
      if (found == std::end(kOrders)) return unsupported("masks of another order");
      order_ = *found;
      return {};
    }
    if (h_.bits == 16 && colours == kMasks565) kind_ = BmpPixels::kWord565;
    const bool known =
        h_.bits == 24 ? colours == kMasks24 : colours == kMasks565 || colours == kMasks555;
    return known ? Status() : unsupported("masks of another order");
  }

  // A table that is the gray levels in order is no table: the pixels are levels then.
  Status read_table() {
    if (h_.compression == kMasked) return unsupported("masks of indices");
    if (h_.colours > kMostColours) return damaged("more than 65536 colours");
    const uint64_t begin = std::min<uint64_t>(h_.table, file_.size());
    const uint64_t size = std::min(h_.colour_bytes * h_.colours, file_.size() - begin);
    const Bytes table = file_.subspan(begin, size);
    if (h_.pixels == 0) h_.pixels = begin + size;
    bool gray = true;
    for (uint64_t i = 0; i < h_.colours && gray; ++i) {
      const auto level = static_cast<uint8_t>(h_.colours == 2 ? 255 * i : i);
      const uint64_t at = i * h_.colour_bytes;
      gray = at + 3 <= size;
      for (uint64_t j = 0; j < 3 && gray; ++j) gray = octets(table)[at + j] == level;
    }
    kind_ = !gray ? BmpPixels::kIndices : h_.colours <= 2 ? BmpPixels::kBits : BmpPixels::kGray;
    if (gray) return {};
    if (size / h_.colour_bytes > table_.size()) return damaged("a table of more than 256 colours");
    for (uint64_t i = 0; i < size / h_.colour_bytes; ++i) {
      const uint8_t* entry = octets(table) + i * h_.colour_bytes;
      table_[i] = {entry[2], entry[1], entry[0]};
    }
    return {};
  }

  // -- rows of pixels

  // The bits of a pixel. Where a table is left out, they need not be those that the header states.
  uint64_t depth() const {
    return kind_ == BmpPixels::kBits ? 1 : kind_ == BmpPixels::kGray ? 8 : h_.bits;
  }
  bool is_mapped() const {
    return kind_ == BmpPixels::kGray || (kind_ == BmpPixels::kIndices && h_.bits == 8) ||
           (kind_ == BmpPixels::kBytes32 && order_.same_in_memory);
  }

  Result<Decoded> decode_rows() {
    const uint64_t stride = (h_.width * h_.bits + 31) / 8 & ~uint64_t{3};
    const uint64_t row = (h_.width * depth() + 7) / 8;
    if (row > stride) return damaged("its rows are shorter than their pixels");
    const uint64_t begin = h_.pixels > 0 ? h_.pixels : h_.table;
    const uint64_t size = stride * (h_.height - 1) + (is_mapped() ? stride : row);
    if (!range_inside(begin, size, file_.size())) return early();
    Decoded out = blank();
    for (uint64_t y = 0; y < h_.height; ++y) {
      put_row(octets(file_) + begin + stride * y, row_of(out, y));
    }
    return out;
  }
  Decoded blank() const {
    return Decoded{make_image({static_cast<int>(h_.width), static_cast<int>(h_.height)})};
  }
  uint8_t* row_of(Decoded& out, uint64_t y) const {
    return out.image.row(static_cast<int>(h_.top_down ? y : h_.height - 1 - y));
  }
  void put_row(const uint8_t* from, uint8_t* to) const {
    for (uint64_t x = 0; x < h_.width; ++x, to += 3) put_pixel(from, x, to);
  }
  void put_pixel(const uint8_t* row, uint64_t x, uint8_t* to) const {
    switch (kind_) {
      case BmpPixels::kBits:
      case BmpPixels::kGray:
      case BmpPixels::kIndices:
        return put_index(index_in(row, x), to);
      case BmpPixels::kWord555:
        return put_word(row + 2 * x, 5, to);
      case BmpPixels::kWord565:
        return put_word(row + 2 * x, 6, to);
      case BmpPixels::kBytes24:
        return put_bytes(row + 3 * x, {{}, 2, 1, 0}, to);
      case BmpPixels::kBytes32:
        return put_bytes(row + 4 * x, order_, to);
    }
  }
  uint8_t index_in(const uint8_t* row, uint64_t x) const {
    const uint64_t bits = depth(), at = x * bits;
    const auto mask = static_cast<uint8_t>((1 << bits) - 1);
    return static_cast<uint8_t>(row[at / 8] >> (8 - bits - at % 8)) & mask;
  }
  void put_index(uint8_t index, uint8_t* to) const {
    if (kind_ == BmpPixels::kIndices) {
      std::ranges::copy(table_[index], to);
    } else {
      std::fill_n(to, 3, kind_ == BmpPixels::kBits && index != 0 ? uint8_t{255} : index);
    }
  }
  static void put_bytes(const uint8_t* from, const ByteOrder& order, uint8_t* to) {
    to[0] = from[order.red];
    to[1] = from[order.green];
    to[2] = from[order.blue];
  }
  static void put_word(const uint8_t* from, int green_bits, uint8_t* to) {
    const int word = from[0] | from[1] << 8, greens = (1 << green_bits) - 1;
    to[0] = static_cast<uint8_t>((word >> (5 + green_bits) & 31) * 255 / 31);
    to[1] = static_cast<uint8_t>((word >> 5 & greens) * 255 / greens);
    to[2] = static_cast<uint8_t>((word & 31) * 255 / 31);
  }

  // -- runs

  // Each pixel is a byte, whatever the depth. A row may have fewer than its pixels: then it ends
  // with zeros.
  Result<Decoded> decode_runs() {
    const uint64_t all = h_.width * h_.height;
    at_ = h_.pixels > 0 ? h_.pixels : h_.table;
    while (pixels_.size() < all && at_ + 2 <= file_.size()) {
      const uint64_t count = octets(file_)[at_], value = octets(file_)[at_ + 1];
      at_ += 2;
      if (count > 0) {
        put_run(std::min(count, h_.width - std::min(column_, h_.width)), value);
      } else if (value == 0) {
        pixels_.resize((pixels_.size() + h_.width - 1) / h_.width * h_.width);
        column_ = 0;
      } else if (value == 1 || !(value == 2 ? skip(all) : put_bytes_of_run(value, all))) {
        break;
      }
    }
    if (pixels_.size() < all) return damaged("its runs end early");
    Decoded out = blank();
    for (uint64_t y = 0; y < h_.height; ++y) {
      uint8_t* to = row_of(out, y);
      for (uint64_t x = 0; x < h_.width; ++x) put_index(pixels_[y * h_.width + x], to + 3 * x);
    }
    return out;
  }
  void put_run(uint64_t count, uint64_t value) {
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t half = i % 2 == 0 ? value >> 4 : value & 15;
      pixels_.push_back(static_cast<uint8_t>(h_.compression == kRle4 ? half : value));
    }
    column_ += count;
  }
  // Skips columns and rows; false at the end of the file.
  bool skip(uint64_t all) {
    if (at_ + 2 > file_.size()) return false;
    const uint64_t right = octets(file_)[at_], up = octets(file_)[at_ + 1];
    at_ += 2;
    pixels_.resize(pixels_.size() + std::min(all - pixels_.size(), right + up * h_.width));
    column_ = pixels_.size() % h_.width;
    return true;
  }
  // Takes pixels as they are; false at the end of the file or the picture.
  bool put_bytes_of_run(uint64_t stated, uint64_t all) {
    const uint64_t count = std::min(all - pixels_.size(), stated);
    const bool halves = h_.compression == kRle4;
    const uint64_t bytes = halves ? (count + 1) / 2 : count;
    if (at_ + bytes > file_.size()) return false;
    for (uint64_t i = 0; i < count; ++i) {
      const uint8_t byte = octets(file_)[at_ + (halves ? i / 2 : i)];
      pixels_.push_back(static_cast<uint8_t>(!halves ? byte : i % 2 == 0 ? byte >> 4 : byte & 15));
    }
    at_ += bytes;
    column_ += stated;
    at_ += at_ % 2;
    return pixels_.size() < all;
  }

  Bytes file_;
  const std::string& where_;
  BmpHeader h_ = {};
  BmpPixels kind_ = BmpPixels::kIndices;
  ByteOrder order_ = {{}, 2, 1, 0};
  std::array<std::array<uint8_t, 3>, 256> table_ = {};
  // The position in the file, the pixels so far, and the column that a run begins at.
  uint64_t at_ = 0, column_ = 0;
  std::vector<uint8_t> pixels_ = {};
};

}  // namespace

Result<Decoded> decode_bmp(Bytes file, const std::string& where) {
  return BmpFile(file, where).decode();
}

}  // namespace ferry::media
