// PBM, PGM and PPM, plain and binary, as Pillow's PpmImagePlugin reads them.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "core/checked.h"
#include "media/codecs.h"

namespace ferry::media {
namespace {

constexpr std::string_view kSpace = " \t\n\v\f\r";
constexpr int64_t kMostValue = 65535;
constexpr size_t kMostDigits = 10;

bool is_space(char c) { return kSpace.find(c) != std::string_view::npos; }

// The text of a file: words between white space. A comment goes to the end of its line, and may be
// within a word, as in Pillow.
class PnmText {
 public:
  explicit PnmText(Bytes file) : text_(reinterpret_cast<const char*>(octets(file)), file.size()) {}

  // Returns the next character that is neither white space nor in a comment.
  std::optional<char> next() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '#') {
        skip_comment();
      } else if (!is_space(c)) {
        return c;
      }
    }
    return std::nullopt;
  }
  // Returns the next word as a number, and skips the white space that ends it. Another word, and
  // one of more than ten digits, is no number.
  std::optional<int64_t> number() {
    std::string word;
    if (const auto first = next()) word += *first;
    while (at_ < text_.size() && !word.empty() && word.size() <= kMostDigits) {
      const char c = text_[at_++];
      if (is_space(c)) break;
      if (c == '#') {
        skip_comment();
      } else {
        word += c;
      }
    }
    const bool digits = std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    if (word.empty() || word.size() > kMostDigits || !digits) return std::nullopt;
    return std::stoll(word);
  }
  size_t place() const { return at_; }

 private:
  void skip_comment() { at_ = std::min(text_.find_first_of("\r\n", at_), text_.size() - 1) + 1; }

  std::string_view text_;
  size_t at_ = 3;  // behind the name of the format and a white space
};

// Returns the level of a value; a gray one of more than 8 bits is one of 16, and saturates.
uint8_t level_of(int64_t value, int64_t greatest, bool gray) {
  const double most = gray && greatest > 255 ? 65535 : 255;
  const double level =
      std::nearbyint(static_cast<double>(value) / static_cast<double>(greatest) * most);
  return static_cast<uint8_t>(std::min(level, 255.0));
}

class PnmFile {
 public:
  PnmFile(Bytes file, const std::string& where) : file_(file), where_(where), text_(file) {}

  Result<Decoded> decode() {
    const char* bytes = reinterpret_cast<const char*>(octets(file_));
    if (file_.size() < 3 || !is_space(bytes[2])) return bad_input(where_ + ": damaged PNM header");
    kind_ = bytes[1];
    const auto width = text_.number(), height = text_.number();
    const auto greatest = is_bits() ? std::optional<int64_t>(1) : text_.number();
    if (!width || !height || !greatest || *greatest < 1 || *greatest > kMostValue) {
      return bad_input(where_ + ": damaged PNM header");
    }
    FERRY_RETURN_IF_ERROR(check_size(*width, *height, where_));
    greatest_ = *greatest;
    const Size size = {static_cast<int>(*width), static_cast<int>(*height)};
    FERRY_RETURN_IF_ERROR(check_room(size));
    Decoded out{make_image(size)};
    FERRY_RETURN_IF_ERROR(is_plain() ? read_plain(out.image) : read_binary(out.image));
    return out;
  }

 private:
  bool is_plain() const { return kind_ <= '3'; }
  bool is_bits() const { return kind_ == '1' || kind_ == '4'; }
  bool is_gray() const { return kind_ != '3' && kind_ != '6'; }
  // The bytes of a row of a binary file.
  size_t row_bytes(Size size) const {
    const auto width = static_cast<size_t>(size.width);
    const size_t wide = greatest_ > 255 ? 2 : 1;
    return is_bits() ? (width + 7) / 8 : width * (is_gray() ? 1 : 3) * wide;
  }
  // Fails if the file is too short for the pixels. A value of a plain file has a digit.
  Status check_room(Size size) const {
    const size_t row =
        is_plain() ? static_cast<size_t>(size.width) * (is_gray() ? 1 : 3) : row_bytes(size);
    const size_t bytes = row * static_cast<size_t>(size.height);
    if (range_inside(text_.place(), bytes, file_.size())) return {};
    return bad_input(where_ + ": damaged PNM: the file ends early");
  }

  // Writes a value to a place, or a gray one to three.
  void put(Image& image, size_t number, uint8_t level) const {
    if (is_gray()) {
      std::fill_n(image.rgb.begin() + static_cast<std::ptrdiff_t>(3 * number), 3, level);
    } else {
      image.rgb[number] = level;
    }
  }
  size_t values(const Image& image) const { return image.rgb.size() / (is_gray() ? 3 : 1); }

  Status read_plain(Image& image) {
    for (size_t i = 0; i < values(image); ++i) {
      const std::optional<int64_t> value = is_bits() ? bit() : text_.number();
      if (!value || *value > greatest_) {
        return bad_input(where_ + ": damaged PNM: a value is missing or out of range");
      }
      put(image, i, is_bits() ? (*value == 0 ? 255 : 0) : level_of(*value, greatest_, is_gray()));
    }
    return {};
  }
  // Digits of black and white need no white space between them.
  std::optional<int64_t> bit() {
    const std::optional<char> digit = text_.next();
    if (digit != '0' && digit != '1') return std::nullopt;
    return *digit - '0';
  }

  Status read_binary(Image& image) {
    const auto width = static_cast<size_t>(image.size.width);
    const size_t row = row_bytes(image.size);
    const uint8_t* from = octets(file_) + text_.place();
    for (size_t i = 0; i < values(image); ++i) {
      if (is_bits()) {
        const size_t x = i % width;
        const bool black = from[i / width * row + x / 8] >> (7 - x % 8) & 1;
        put(image, i, black ? 0 : 255);
        continue;
      }
      const int value = greatest_ > 255 ? from[2 * i] << 8 | from[2 * i + 1] : from[i];
      put(image, i,
          greatest_ == 255 ? static_cast<uint8_t>(value) : level_of(value, greatest_, is_gray()));
    }
    return {};
  }

  Bytes file_;
  const std::string& where_;
  PnmText text_;
  char kind_ = '0';
  int64_t greatest_ = 1;
};

}  // namespace

Result<Decoded> decode_pnm(Bytes file, const std::string& where) {
  return PnmFile(file, where).decode();
}

}  // namespace ferry::media
