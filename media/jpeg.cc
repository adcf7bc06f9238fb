// libjpeg reports errors by calling a function that must not return. That function jumps back into
// guarded(). The jump skips no destructor: the caller of guarded() owns all that is allocated.
#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// These headers need <cstdio> before them.
#include <jerror.h>
#include <jpeglib.h>

#include "media/codecs.h"

namespace ferry::media {
namespace {

// A progressive file of a few bytes can ask for any number of passes over a large image.
constexpr int kMaxScans = 100;

struct Jpeg {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX]{};

  Jpeg();
  ~Jpeg() { jpeg_destroy_decompress(&info); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
};

Jpeg& owner(j_common_ptr info) { return *static_cast<Jpeg*>(info->client_data); }

[[noreturn]] void stop(j_common_ptr info) {
  Jpeg& jpeg = owner(info);
  info->err->format_message(info, jpeg.message);
  std::longjmp(jpeg.jump, 1);
}

// Returns whether a warning means that no pixel is lost. All other warnings mean damaged data.
bool is_harmless(int code) {
  return code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR || code == JWRN_TOO_MUCH_DATA ||
         code == JWRN_EXTRANEOUS_DATA;
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) stop(info);
}

void count_scans(j_common_ptr info) {
  if (owner(info).info.input_scan_number <= kMaxScans) return;
  std::snprintf(owner(info).message, JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
  std::longjmp(owner(info).jump, 1);
}

Jpeg::Jpeg() {
  info.err = jpeg_std_error(&errors);
  info.client_data = this;
  errors.error_exit = stop;
  errors.emit_message = on_message;
  progress.progress_monitor = count_scans;
}

// Returns false if libjpeg reported an error. `step` must not own anything.
template <class Step>
bool guarded(Jpeg& jpeg, Step&& step) {
  if (setjmp(jpeg.jump)) return false;
  step(jpeg.info);
  return true;
}

Failure damaged(const Jpeg& jpeg, const std::string& where) {
  return bad_input(where + ": damaged JPEG: " + jpeg.message);
}

bool read_header(Jpeg& jpeg, Bytes file) {
  return guarded(jpeg, [&](jpeg_decompress_struct& info) {
    jpeg_create_decompress(&info);
    info.progress = &jpeg.progress;
    jpeg_mem_src(&info, octets(file), file.size());
    jpeg_save_markers(&info, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info, TRUE);
  });
}

// Pillow joins the parts of EXIF, and takes the last XMP.
int stated_orientation(const jpeg_decompress_struct& info) {
  constexpr std::string_view kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  std::string exif;
  std::string_view xmp;
  for (jpeg_saved_marker_ptr m = info.marker_list; m; m = m->next) {
    std::string_view data(reinterpret_cast<const char*>(m->data), m->data_length);
    if (data.starts_with(kExif)) exif += data.substr(kExif.size());
    if (data.starts_with(kXmp)) xmp = data.substr(kXmp.size());
  }
  return orientation_of(std::as_bytes(std::span(exif)), xmp);
}

J_COLOR_SPACE output_of(int components) {
  switch (components) {
    case 1:
      return JCS_GRAYSCALE;
    case 3:
      return JCS_RGB;
    case 4:
      return JCS_CMYK;
    default:
      return JCS_UNKNOWN;
  }
}

void to_rgb(int components, const uint8_t* from, uint8_t* to, size_t count) {
  if (components == 4) return convert_inverted_cmyk(from, to, count);
  for (size_t i = 0; i < count; ++i) to[3 * i] = to[3 * i + 1] = to[3 * i + 2] = from[i];
}

// `row` holds one row of four components.
bool read_pixels(Jpeg& jpeg, Image& image, std::vector<uint8_t>& row) {
  return guarded(jpeg, [&](jpeg_decompress_struct& info) {
    const int components = info.num_components;
    info.out_color_space = output_of(components);
    info.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      uint8_t* out = image.row(static_cast<int>(info.output_scanline));
      JSAMPROW into = components == 3 ? out : row.data();
      jpeg_read_scanlines(&info, &into, 1);
      if (components != 3) to_rgb(components, into, out, info.output_width);
    }
    jpeg_finish_decompress(&info);
  });
}

}  // namespace

Result<Decoded> decode_jpeg(Bytes file, const std::string& where) {
  Jpeg jpeg;
  if (!read_header(jpeg, file)) return damaged(jpeg, where);
  FERRY_RETURN_IF_ERROR(check_size(jpeg.info.image_width, jpeg.info.image_height, where));
  if (output_of(jpeg.info.num_components) == JCS_UNKNOWN) {
    return fail(ErrorCode::kUnsupported,
                where + ": JPEG of " + std::to_string(jpeg.info.num_components) + " components");
  }
  const Size size{static_cast<int>(jpeg.info.image_width),
                  static_cast<int>(jpeg.info.image_height)};
  Decoded out{make_image(size), stated_orientation(jpeg.info)};
  std::vector<uint8_t> row(size_t{4} * static_cast<size_t>(size.width));
  if (!read_pixels(jpeg, out.image, row)) return damaged(jpeg, where);
  return out;
}

namespace {

// Returns a * b / 255, rounded.
int scaled(int a, int b) {
  const int t = a * b + 128;
  return ((t >> 8) + t) >> 8;
}

}  // namespace

void convert_inverted_cmyk(const uint8_t* cmyk, uint8_t* rgb, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int light = cmyk[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int value = light - scaled(255 - cmyk[4 * i + c], light);
      rgb[3 * i + c] = static_cast<uint8_t>(std::clamp(value, 0, 255));
    }
  }
}

}  // namespace ferry::media
