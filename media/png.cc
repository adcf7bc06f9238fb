// libpng reports errors by calling a function that must not return. It jumps back here; nothing
// that a jump leaves has a destructor: what is allocated belongs to the caller of guarded().
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/text.h"
#include "media/codecs.h"

namespace ferry::media {
namespace {

// Of a chunk beside the pixels, such as a colour profile.
constexpr png_alloc_size_t kMaxChunkBytes = 8 << 20;

struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;
  Bytes left;
  std::jmp_buf jump{};
  char message[128]{};

  explicit Png(Bytes file);
  ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
};

[[noreturn]] void stop(png_structp png, png_const_charp message) {
  Png& self = *static_cast<Png*>(png_get_error_ptr(png));
  std::snprintf(self.message, sizeof self.message, "%s", message);
  std::longjmp(self.jump, 1);
}

void ignore(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t size) {
  Png& self = *static_cast<Png*>(png_get_io_ptr(png));
  if (size > self.left.size()) stop(png, "the file ends early");
  std::memcpy(out, self.left.data(), size);
  self.left = self.left.subspan(size);
}

// A null `png` or `info` means that there is no memory.
Png::Png(Bytes file) : left(file) {
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, stop, ignore);
  if (png) info = png_create_info_struct(png);
}

// False when libpng gave up; `step` may own nothing.
template <class Step>
bool guarded(Png& self, Step&& step) {
  if (setjmp(self.jump)) return false;
  step(self.png, self.info);
  return true;
}

tl::unexpected<Error> damaged(const Png& self, const std::string& where) {
  return bad_input(where + ": damaged PNG: " + printable(self.message));
}

bool read_header(Png& self) {
  return guarded(self, [&](png_structp png, png_infop info) {
    png_set_read_fn(png, &self, read_bytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size says it better
    png_set_chunk_malloc_max(png, kMaxChunkBytes);
    png_read_info(png, info);
  });
}

bool is_gray16(png_const_structp png, png_const_infop info) {
  return png_get_color_type(png, info) == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) == 16;
}

// Everything to 8-bit RGB, but for 16-bit gray, which stays.
void set_transforms(png_structp png, png_infop info) {
  if (is_gray16(png, info)) return;
  const int type = png_get_color_type(png, info);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
}

// Pillow's I;16 to L: values saturate.
void saturate_gray16(const uint8_t* from, uint8_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint8_t value = from[2 * i] ? 255 : from[2 * i + 1];
    to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = value;
  }
}

// `wide` has the rows of a 16-bit gray image.
bool read_pixels(Png& self, Image& image, std::vector<uint8_t>& wide) {
  return guarded(self, [&](png_structp png, png_infop info) {
    const bool gray16 = is_gray16(png, info);
    set_transforms(png, info);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const size_t bytes = gray16 ? size_t{2} * static_cast<size_t>(image.size.width)  //
                                : image.row_bytes();
    if (png_get_rowbytes(png, info) != bytes) png_error(png, "unexpected length of a row");
    for (int pass = 0; pass < passes; ++pass) {
      for (int y = 0; y < image.size.height; ++y) {
        png_read_row(png, gray16 ? wide.data() + bytes * static_cast<size_t>(y) : image.row(y),
                     nullptr);
      }
    }
    const int entries = png_get_palette_max(png, info);
    png_read_end(png, info);
    png_colorp palette = nullptr;
    int colours = 0;
    png_get_PLTE(png, info, &palette, &colours);
    if (colours > 0 && entries >= colours) png_error(png, "a pixel beyond the palette");
  });
}

int orientation_of(Png& self) {
  png_bytep exif = nullptr;
  png_uint_32 size = 0;
  png_get_eXIf_1(self.png, self.info, &size, &exif);
  return exif ? exif_orientation({reinterpret_cast<const std::byte*>(exif), size}) : 1;
}

}  // namespace

Result<Decoded> decode_png(Bytes file, const std::string& where) {
  Png self(file);
  if (!self.info) return fail(ErrorCode::kIo, "not enough memory");
  if (!read_header(self)) return damaged(self, where);
  const png_uint_32 width = png_get_image_width(self.png, self.info);
  const png_uint_32 height = png_get_image_height(self.png, self.info);
  FERRY_RETURN_IF_ERROR(check_size(width, height, where));
  Decoded out{make_image({static_cast<int>(width), static_cast<int>(height)})};
  const bool gray16 = is_gray16(self.png, self.info);
  std::vector<uint8_t> wide(gray16 ? size_t{2} * width * height : 0);
  if (!read_pixels(self, out.image, wide)) return damaged(self, where);
  if (gray16) saturate_gray16(wide.data(), out.image.rgb.data(), size_t{width} * height);
  out.orientation = orientation_of(self);
  return out;
}

}  // namespace ferry::media
