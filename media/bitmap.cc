// BMP and PNM: headers and rows of bytes.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/checked.h"
#include "media/codecs.h"
#include "media/little_endian.h"

namespace ferry::media {
namespace {

constexpr uint64_t kBmpFileHeader = 14, kBmpInfoHeader = 40;

struct BmpHeader {
  uint64_t pixels;        // position in the file
  int64_t width, height;  // size of the image
  bool bottom_up;         // the rows are stored from bottom to top
};

Result<BmpHeader> read_bmp_header(Bytes file, const std::string& where) {
  if (file.size() < kBmpFileHeader + kBmpInfoHeader) {
    return bad_input(where + ": damaged BMP: the file ends early");
  }
  const bool plain = little_endian(file, 14, 4) >= kBmpInfoHeader &&
                     little_endian(file, 28, 2) == 24 && little_endian(file, 30, 4) == 0;
  if (!plain) {
    return fail(ErrorCode::kUnsupported, where + ": BMP other than uncompressed 24-bit RGB");
  }
  const auto height = static_cast<int32_t>(little_endian(file, 22, 4));
  return BmpHeader{little_endian(file, 10, 4), static_cast<int32_t>(little_endian(file, 18, 4)),
                   std::abs(int64_t{height}), height > 0};
}

void copy_bgr(const uint8_t* from, uint8_t* to, int count) {
  for (int i = 0; i < count; ++i, from += 3, to += 3) {
    to[0] = from[2];
    to[1] = from[1];
    to[2] = from[0];
  }
}

// The header of a PNM file: numbers separated by white space and comments.
class PnmHeader {
 public:
  explicit PnmHeader(Bytes file)
      : text_(reinterpret_cast<const char*>(octets(file)), file.size()) {}

  // Returns the next number, which has at most nine digits.
  std::optional<int64_t> number() {
    skip_space();
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && at_ - begin < 9) {
      value = 10 * value + (text_[at_++] - '0');
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }
  // Returns the position of the pixels: one white space character ends the header.
  size_t pixels() const { return at_ + 1; }

 private:
  void skip_space() {
    constexpr std::string_view kSkipped = " \t\r\n\v\f#";
    while (at_ < text_.size() && kSkipped.find(text_[at_]) != std::string_view::npos) {
      if (text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size() - 1);
      ++at_;
    }
  }

  std::string_view text_;
  size_t at_ = 2;
};

}  // namespace

Result<Decoded> decode_bmp(Bytes file, const std::string& where) {
  const BmpHeader header = FERRY_TRY(read_bmp_header(file, where));
  FERRY_RETURN_IF_ERROR(check_size(header.width, header.height, where));
  const uint64_t stride = align_up(static_cast<uint64_t>(3 * header.width), 4);
  if (!range_inside(header.pixels, stride * static_cast<uint64_t>(header.height), file.size())) {
    return bad_input(where + ": damaged BMP: the file ends early");
  }
  Decoded out{make_image({static_cast<int>(header.width), static_cast<int>(header.height)})};
  const int height = out.image.size.height;
  for (int y = 0; y < height; ++y) {
    const uint8_t* from = octets(file) + header.pixels + stride * static_cast<uint64_t>(y);
    copy_bgr(from, out.image.row(header.bottom_up ? height - 1 - y : y), out.image.size.width);
  }
  return out;
}

Result<Decoded> decode_pnm(Bytes file, const std::string& where) {
  PnmHeader header(file);
  const std::optional<int64_t> width = header.number();
  const std::optional<int64_t> height = header.number();
  const std::optional<int64_t> greatest = header.number();
  if (!width || !height || !greatest) return bad_input(where + ": damaged PNM header");
  FERRY_RETURN_IF_ERROR(check_size(*width, *height, where));
  if (*greatest != 255) {
    return fail(ErrorCode::kUnsupported, where + ": PNM whose greatest value is not 255");
  }
  const bool gray = octets(file)[1] == '5';
  const auto values = static_cast<uint64_t>(*width * *height * (gray ? 1 : 3));
  if (!range_inside(header.pixels(), values, file.size())) {
    return bad_input(where + ": damaged PNM: the file ends early");
  }
  Decoded out{make_image({static_cast<int>(*width), static_cast<int>(*height)})};
  const uint8_t* from = octets(file) + header.pixels();
  const size_t repeat = gray ? 3 : 1;
  for (size_t i = 0; i < out.image.rgb.size(); ++i) out.image.rgb[i] = from[i / repeat];
  return out;
}

}  // namespace ferry::media
