// libpng reports errors by calling a function that must not return. That function jumps back into
// guarded(). The jump skips no destructor: the caller of guarded() owns all that is allocated.
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "core/text.h"
#include "media/codecs.h"
#include "media/png_chunks.h"

namespace ferry::media {
namespace {

// The largest size of a chunk other than the pixels, such as a colour profile.
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

// `png` or `info` is null if there is no memory.
Png::Png(Bytes file) : left(file) {
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, stop, ignore);
  if (png) info = png_create_info_struct(png);
}

// Returns false if libpng reported an error. `step` must not own anything.
template <class Step>
bool guarded(Png& self, Step&& step) {
  if (setjmp(self.jump)) return false;
  step(self.png, self.info);
  return true;
}

Failure damaged(const Png& self, const std::string& where) {
  return bad_input(where + ": damaged PNG: " + printable(self.message));
}

// notes_of() reads what of these is needed. libpng would unpack all of them, and keep them.
constexpr png_byte kSkippedChunks[] = "tEXt\0zTXt\0iTXt\0eXIf\0iCCP\0sPLT";

bool read_header(Png& self) {
  return guarded(self, [&](png_structp png, png_infop info) {
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, kSkippedChunks,
                                sizeof kSkippedChunks / 5);
    png_set_read_fn(png, &self, read_bytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size has a better message
    png_set_chunk_malloc_max(png, kMaxChunkBytes);
    png_read_info(png, info);
  });
}

// The form in which libpng returns pixels: 8-bit RGB, or a form that is converted here.
enum class Form : size_t { kRgb = 3, kGray16 = 2, kIndex = 1 };  // bytes per pixel

Form form_of(const Png& self) {
  const int type = png_get_color_type(self.png, self.info);
  if (type == PNG_COLOR_TYPE_PALETTE) return Form::kIndex;
  const bool wide = png_get_bit_depth(self.png, self.info) == 16;
  return type == PNG_COLOR_TYPE_GRAY && wide ? Form::kGray16 : Form::kRgb;
}

void set_transforms(png_structp png, png_infop info, Form form) {
  if (form == Form::kGray16) return;
  if (form == Form::kIndex) return png_set_packing(png);
  const int type = png_get_color_type(png, info);
  if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
}

// `row_bytes` is the size of a row in `form`.
bool read_pixels(Png& self, Form form, uint8_t* pixels, size_t row_bytes, int rows) {
  return guarded(self, [&](png_structp png, png_infop info) {
    set_transforms(png, info, form);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "unexpected length of a row");
    for (int pass = 0; pass < passes; ++pass) {
      for (int y = 0; y < rows; ++y) {
        png_read_row(png, pixels + row_bytes * static_cast<size_t>(y), nullptr);
      }
    }
    png_read_end(png, info);
  });
}

// Converts I;16 to L as Pillow does: values saturate.
void saturate_gray16(const std::vector<uint8_t>& gray, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; 2 * i < gray.size(); ++i) {
    std::fill_n(&rgb[3 * i], 3, gray[2 * i] ? uint8_t{255} : gray[2 * i + 1]);
  }
}

// Returns false if a pixel's index is beyond the palette.
bool look_up(Png& self, const std::vector<uint8_t>& indices, std::vector<uint8_t>& rgb) {
  png_colorp palette = nullptr;
  int colours = 0;
  png_get_PLTE(self.png, self.info, &palette, &colours);
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= colours) return false;
    const png_color& colour = palette[indices[i]];
    rgb[3 * i] = colour.red;
    rgb[3 * i + 1] = colour.green;
    rgb[3 * i + 2] = colour.blue;
  }
  return true;
}

using PngColour = std::optional<std::array<uint8_t, 3>>;

// Returns the colour of the only entry of a palette that is transparent, where the others are not
// at all.
PngColour clear_entry(Png& self, Bytes alphas) {
  constexpr std::byte kOpaque{255}, kClear{0};
  const auto others = std::ranges::count_if(alphas, [&](std::byte a) { return a != kOpaque; });
  const auto found = std::ranges::find(alphas, kClear);
  if (others != 1 || found == alphas.end()) return std::nullopt;
  png_colorp palette = nullptr;
  int colours = 0;
  png_get_PLTE(self.png, self.info, &palette, &colours);
  const auto index = found - alphas.begin();
  if (index >= colours) return std::array<uint8_t, 3>{};
  return std::array{palette[index].red, palette[index].green, palette[index].blue};
}

// Returns the transparent colour as Pillow finds it in the RGB image: the numbers of the file,
// whatever the depth, cut to 8 bits where they are not those of 8-bit gray. Of 1 and 16 bits of
// gray it takes the number for red.
PngColour clear_colour(Png& self, Bytes transparency) {
  const int type = png_get_color_type(self.png, self.info);
  const int depth = png_get_bit_depth(self.png, self.info);
  if (type == PNG_COLOR_TYPE_PALETTE) return clear_entry(self, transparency);
  const bool gray = type == PNG_COLOR_TYPE_GRAY;
  if ((!gray && type != PNG_COLOR_TYPE_RGB) || transparency.size() < (gray ? 2 : 6)) return {};
  const auto number = [&](size_t i) {
    return octets(transparency)[2 * i] * 256 + octets(transparency)[2 * i + 1];
  };
  const auto low = [&](size_t i) { return static_cast<uint8_t>(number(i)); };
  if (!gray) return std::array{low(0), low(1), low(2)};
  if (depth == 1) return std::array<uint8_t, 3>{number(0) != 0 ? uint8_t{255} : uint8_t{0}, 0, 0};
  if (depth == 16) return std::array<uint8_t, 3>{low(0), 0, 0};
  const auto level = static_cast<uint8_t>(std::min(number(0), 255));
  return std::array{level, level, level};
}

}  // namespace

Result<Decoded> decode_png(Bytes file, const std::string& where) {
  Png self(file);
  if (!self.info) return fail(ErrorCode::kIo, "not enough memory");
  if (!read_header(self)) return damaged(self, where);
  const png_uint_32 width = png_get_image_width(self.png, self.info);
  const png_uint_32 height = png_get_image_height(self.png, self.info);
  FERRY_RETURN_IF_ERROR(check_size(width, height, where));
  const PngNotes notes = notes_of(file);
  if (!notes.refusal.empty()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: PNG: {}", where, notes.refusal));
  }
  Decoded out{make_image({static_cast<int>(width), static_cast<int>(height)})};
  out.image.clear = clear_colour(self, notes.transparency);
  const Form form = form_of(self);
  const size_t row_bytes = static_cast<size_t>(form) * width;
  std::vector<uint8_t> other(form == Form::kRgb ? 0 : row_bytes * height);
  uint8_t* pixels = form == Form::kRgb ? out.image.rgb.data() : other.data();
  if (!read_pixels(self, form, pixels, row_bytes, static_cast<int>(height))) {
    return damaged(self, where);
  }
  if (form == Form::kGray16) saturate_gray16(other, out.image.rgb);
  if (form == Form::kIndex && !look_up(self, other, out.image.rgb)) {
    return bad_input(where + ": damaged PNG: a pixel beyond the palette");
  }
  out.orientation = orientation_of(notes);
  return out;
}

}  // namespace ferry::media
