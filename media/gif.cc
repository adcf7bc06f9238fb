// GIF: the first frame, as Pillow shows it. Source: Graphics Interchange Format 89a.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "core/checked.h"
#include "media/codecs.h"

namespace ferry::media {
namespace {

constexpr size_t kGifSignature = 6;
constexpr int kMostCodes = 4096, kMostCodeBits = 12, kMostColourBits = 8;
constexpr uint8_t kGifImage = 0x2C, kGifExtension = 0x21, kGifTrailer = 0x3B;
constexpr uint8_t kGraphicControl = 0xF9, kComment = 0xFE;

using GifColour = std::array<uint8_t, 3>;
using GifColours = std::array<GifColour, 256>;

// Reads the file from front to back. A read beyond the end returns zeros and sets ended().
class GifReader {
 public:
  explicit GifReader(Bytes file) : file_(file) {}

  Bytes take(size_t size) {
    ended_ = ended_ || size > file_.size();
    if (ended_) return {};
    const Bytes out = file_.first(size);
    file_ = file_.subspan(size);
    return out;
  }
  uint8_t octet() {
    const Bytes one = take(1);
    return one.empty() ? uint8_t{0} : octets(one)[0];
  }
  int word() {
    const int low = octet();
    return low + 256 * octet();
  }
  // Returns a block of data, which is empty behind the last.
  Bytes block() { return take(octet()); }
  bool ended() const { return ended_; }

 private:
  Bytes file_;
  bool ended_ = false;
};

GifColours gray_levels() {
  GifColours out;
  for (size_t i = 0; i < out.size(); ++i) out[i].fill(static_cast<uint8_t>(i));
  return out;
}

// Reads a table over `colours`. Indices beyond it are black. Pillow ignores a table of gray whose
// colours are their own indices.
void read_colours(GifReader& reader, int flags, GifColours& colours) {
  const size_t count = size_t{2} << (flags & 7);
  const Bytes table = reader.take(3 * count);
  if (table.empty()) return;
  GifColours out{};
  for (size_t i = 0; i < count; ++i) std::copy_n(octets(table) + 3 * i, 3, out[i].begin());
  const GifColours gray = gray_levels();
  if (!std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(count), gray.begin())) {
    colours = out;
  }
}

struct GifFrame {
  Size canvas, size;
  int left = 0, top = 0;
  bool interlaced = false;
  GifColours colours = gray_levels();
  uint8_t outside = 0;  // the index of pixels of the canvas that the frame leaves free
  bool transparent = false;
};

// Skips an extension. Pillow reads one without data otherwise than the format says.
Status read_extension(GifReader& reader, GifFrame& frame, const std::string& where) {
  const uint8_t label = reader.octet();
  Bytes block = reader.block();
  if (block.empty() && label != kComment && !reader.ended()) {
    return fail(ErrorCode::kUnsupported, where + ": GIF with an extension without data");
  }
  if (label == kGraphicControl && block.size() >= 4 && (octets(block)[0] & 1) != 0) {
    frame.outside = octets(block)[3];
    frame.transparent = true;
  }
  while (!block.empty()) block = reader.block();
  return {};
}

void read_descriptor(GifReader& reader, GifFrame& frame) {
  frame.left = reader.word();
  frame.top = reader.word();
  frame.size.width = reader.word();
  frame.size.height = reader.word();
  const int flags = reader.octet();
  frame.interlaced = (flags & 0x40) != 0;
  if ((flags & 0x80) != 0) read_colours(reader, flags, frame.colours);
  frame.canvas = {std::max(frame.canvas.width, frame.left + frame.size.width),
                  std::max(frame.canvas.height, frame.top + frame.size.height)};
}

Failure damaged_gif(const std::string& where, const char* what) {
  return bad_input(where + ": damaged GIF: " + what);
}

Result<GifFrame> read_frame(GifReader& reader, const std::string& where) {
  GifFrame frame;
  reader.take(kGifSignature);
  frame.canvas.width = reader.word();
  frame.canvas.height = reader.word();
  const int flags = reader.octet();
  reader.take(2);  // background and shape of pixels
  if ((flags & 0x80) != 0) read_colours(reader, flags, frame.colours);
  while (!reader.ended()) {
    const uint8_t kind = reader.octet();
    if (kind == kGifTrailer) return damaged_gif(where, "no image");
    if (kind == kGifExtension) FERRY_RETURN_IF_ERROR(read_extension(reader, frame, where));
    if (kind != kGifImage) continue;
    read_descriptor(reader, frame);
    break;
  }
  if (reader.ended()) return damaged_gif(where, "the file ends early");
  if (frame.size.width == 0 || frame.size.height == 0) return damaged_gif(where, "an empty frame");
  FERRY_RETURN_IF_ERROR(check_size(frame.canvas.width, frame.canvas.height, where));
  return frame;
}

// The rows of a frame in the order of the file.
class GifRows {
 public:
  GifRows(const GifFrame& frame, Image& image) : frame_(frame), image_(image) {
    step_ = frame.interlaced ? 8 : 1;
  }
  bool full() const { return y_ >= frame_.size.height; }
  void put(uint8_t index) {
    uint8_t* row = image_.row(frame_.top + y_) + ptrdiff_t{3} * frame_.left;
    const GifColour& colour = frame_.colours[index];
    std::copy(colour.begin(), colour.end(), row + ptrdiff_t{3} * x_);
    if (++x_ == frame_.size.width) end_row();
  }

 private:
  void end_row() {
    x_ = 0;
    y_ += step_;
    while (full() && frame_.interlaced && pass_ < 3) {
      constexpr std::array<int, 3> kFirst = {4, 2, 1}, kStep = {8, 4, 2};
      y_ = kFirst[pass_];
      step_ = kStep[pass_++];
    }
  }

  const GifFrame& frame_;
  Image& image_;
  int x_ = 0, y_ = 0, step_ = 1;
  size_t pass_ = 0;
};

// The codes of the image's blocks, from their low bits to their high ones.
class GifCodes {
 public:
  explicit GifCodes(GifReader& reader) : reader_(reader) {}

  // Returns -1 where the blocks end.
  int next(int bits) {
    while (have_ < bits) {
      if (block_.empty()) block_ = reader_.block();
      if (block_.empty()) return -1;
      waiting_ |= static_cast<uint32_t>(octets(block_)[0]) << have_;
      block_ = block_.subspan(1);
      have_ += 8;
    }
    const auto code = static_cast<int>(waiting_ & ((1U << bits) - 1));
    waiting_ >>= bits;
    have_ -= bits;
    return code;
  }

 private:
  GifReader& reader_;
  Bytes block_;
  uint32_t waiting_ = 0;
  int have_ = 0;
};

// The strings of LZW: one is another one and an index behind it.
class GifStrings {
 public:
  explicit GifStrings(int bits) : clear_(1 << bits), bits_(bits) { reset(); }

  int clear() const { return clear_; }
  int end() const { return clear_ + 1; }
  int code_bits() const { return code_bits_; }
  void reset() {
    next_ = clear_ + 2;
    code_bits_ = bits_ + 1;
    last_ = -1;
  }
  // Puts the string of a code. Returns false for a code that no string has.
  bool put(int code, GifRows& rows) {
    if (code > (last_ < 0 ? clear_ : next_) || code == clear_ || code == end()) return false;
    size_t length = 0;
    int rest = code;
    if (last_ >= 0 && code == next_) {
      backwards_[length++] = first_;
      rest = last_;
    }
    while (rest >= clear_) {
      backwards_[length++] = index_[static_cast<size_t>(rest)];
      rest = before_[static_cast<size_t>(rest)];
    }
    first_ = static_cast<uint8_t>(rest);
    backwards_[length++] = first_;
    while (length > 0 && !rows.full()) rows.put(backwards_[--length]);
    if (last_ >= 0) add();
    last_ = code;
    return true;
  }

 private:
  void add() {
    if (next_ >= kMostCodes) return;
    index_[static_cast<size_t>(next_)] = first_;
    before_[static_cast<size_t>(next_)] = last_;
    if (next_ == (1 << code_bits_) - 1 && code_bits_ < kMostCodeBits) ++code_bits_;
    ++next_;
  }

  int clear_, bits_, next_ = 0, code_bits_ = 0;
  int last_ = -1;      // the code before; none behind a clear code
  uint8_t first_ = 0;  // the first index of its string
  std::array<uint8_t, kMostCodes> index_{};
  std::array<int, kMostCodes> before_{};
  std::array<uint8_t, kMostCodes + 1> backwards_{};
};

Status read_indices(GifReader& reader, GifRows& rows, const std::string& where) {
  const int bits = reader.octet();
  if (bits < 1 || bits > kMostColourBits) return damaged_gif(where, "a wrong size of codes");
  GifStrings strings(bits);
  GifCodes codes(reader);
  while (!rows.full()) {
    const int code = codes.next(strings.code_bits());
    if (code < 0 || code == strings.end()) return damaged_gif(where, "the pixels end early");
    if (code == strings.clear()) {
      strings.reset();
    } else if (!strings.put(code, rows)) {
      return damaged_gif(where, "a wrong code");
    }
  }
  return {};
}

// A small file may state a huge canvas, so that rows are copied.
void fill(Image& image, const GifColour& colour) {
  const size_t row = image.row_bytes();
  for (size_t i = 0; i < row; ++i) image.rgb[i] = colour[i % 3];
  for (size_t at = row; at < image.rgb.size(); at += row) {
    std::copy_n(image.rgb.begin(), row, image.rgb.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace

Result<Decoded> decode_gif(Bytes file, const std::string& where) {
  GifReader reader(file);
  const GifFrame frame = FERRY_TRY(read_frame(reader, where));
  Decoded out{make_image(frame.canvas)};
  const GifColour& outside = frame.colours[frame.outside];
  if (frame.transparent) out.image.clear = outside;
  fill(out.image, outside);
  GifRows rows(frame, out.image);
  FERRY_RETURN_IF_ERROR(read_indices(reader, rows, where));
  return out;
}

}  // namespace ferry::media
