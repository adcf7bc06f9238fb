#include "media/png_chunks.h"

#include <zlib.h>

#include <array>
#include <cstring>
#include <optional>

#include "core/checked.h"

namespace ferry::media {
namespace {

constexpr size_t kPngSignature = 8, kPngChunkHeader = 8, kPngChecksum = 4, kFrameControl = 20;
constexpr size_t kMaxText = 1 << 20;  // Pillow refuses longer text
constexpr int kMaxPackedTexts = 100;  // each takes the time of kMaxText
constexpr std::string_view kXmpKey = "XML:com.adobe.xmp", kProfileKey = "Raw profile type exif";

std::string_view png_bytes_as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint32_t png_number(Bytes bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint32_t>(bytes[at + i]);
  return value;
}

// Returns what zlib makes of the text; nothing if it is damaged or longer than kMaxText.
std::string inflated(std::string_view packed) {
  std::string out(kMaxText, '\0');
  uLongf size = out.size();
  const int code = uncompress(reinterpret_cast<Bytef*>(out.data()), &size,
                              reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  out.resize(code == Z_OK ? size : 0);
  return out;
}

// Cuts off what is before the next zero. Returns nothing if there is none.
std::optional<std::string_view> next_field(std::string_view& text) {
  const size_t end = text.find('\0');
  if (end == text.npos) return std::nullopt;
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(end + 1);
  return out;
}

struct PngText {
  std::string_view key, value;
  bool packed = false;
};

std::optional<PngText> read_text(std::string_view tag, std::string_view data) {
  const std::optional<std::string_view> key = next_field(data);
  if (!key || (*key != kXmpKey && *key != kProfileKey)) return std::nullopt;
  if (tag == "tEXt") return PngText{*key, data};
  if (tag == "zTXt") {
    if (data.empty() || data[0] != 0) return std::nullopt;
    return PngText{*key, data.substr(1), true};
  }
  if (data.size() < 2) return std::nullopt;
  const bool packed = data[0] != 0, known = data[1] == 0;
  data.remove_prefix(2);
  if (!next_field(data) || !next_field(data) || (packed && !known)) return std::nullopt;
  return PngText{*key, data, packed};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// ImageMagick writes EXIF as text: an empty line, a name, a size, and lines of hexadecimal digits.
std::string profile_from(std::string_view text) {
  for (int line = 0; line < 3; ++line) {
    const size_t end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  std::string out;
  int before = -1;
  for (const char c : text) {
    const int digit = hex_digit(c);
    if (digit < 0) continue;
    if (before >= 0) out.push_back(static_cast<char>(16 * before + digit));
    before = before < 0 ? digit : -1;
  }
  return out;
}

// A chunk of the file; nothing where no more is whole.
struct PngChunk {
  std::string_view tag;
  Bytes data;
};

std::optional<PngChunk> png_chunk_at(Bytes file, size_t at) {
  if (!range_inside(at, kPngChunkHeader, file.size())) return std::nullopt;
  const size_t size = png_number(file, at);
  if (!range_inside(at + kPngChunkHeader, size + kPngChecksum, file.size())) return std::nullopt;
  return PngChunk{png_bytes_as_text(file.subspan(at + 4, 4)),
                  file.subspan(at + kPngChunkHeader, size)};
}

bool is_text_chunk(std::string_view tag) { return tag == "tEXt" || tag == "zTXt" || tag == "iTXt"; }

}  // namespace

void PngNotes::take_text(std::string_view tag, std::string_view data) {
  const std::optional<PngText> text = read_text(tag, data);
  if (!text) return;
  if (text->packed && ++packed_texts == kMaxPackedTexts) refusal = "too many compressed texts";
  if (!refusal.empty()) return;
  const std::string value = text->packed ? inflated(text->value) : std::string(text->value);
  if (text->key == kXmpKey) xmp = value;
  if (text->key == kProfileKey) profile = profile_from(value);
}

namespace {

bool covers_image(Bytes frame, Bytes header) {
  return png_number(frame, 4) == png_number(header, 0) &&
         png_number(frame, 8) == png_number(header, 4) && png_number(frame, 12) == 0 &&
         png_number(frame, 16) == 0;
}

}  // namespace

PngNotes notes_of(Bytes file) {
  PngNotes notes;
  Bytes header;
  bool pixels = false, moving = false;
  size_t at = kPngSignature;
  while (const std::optional<PngChunk> chunk = png_chunk_at(file, at)) {
    const bool frame = chunk->tag == "fcTL" && chunk->data.size() >= kFrameControl;
    if (chunk->tag == "IEND" || (chunk->tag == "fcTL" && pixels && moving)) break;
    if (chunk->tag == "IHDR") header = chunk->data;
    if (chunk->tag == "IDAT") pixels = true;
    if (chunk->tag == "acTL" && !pixels) moving = true;
    if (frame && !pixels && header.size() >= 8 && !covers_image(chunk->data, header)) {
      notes.refusal = "an animation whose first frame does not cover the image";
    }
    if (chunk->tag == "eXIf") notes.exif = chunk->data;
    if (chunk->tag == "tRNS") notes.transparency = chunk->data;
    if (is_text_chunk(chunk->tag)) notes.take_text(chunk->tag, png_bytes_as_text(chunk->data));
    at += kPngChunkHeader + chunk->data.size() + kPngChecksum;
  }
  return notes;
}

int orientation_of(const PngNotes& notes) {
  const Bytes profile(reinterpret_cast<const std::byte*>(notes.profile.data()),
                      notes.profile.size());
  return orientation_of(notes.exif.empty() ? profile : notes.exif, notes.xmp);
}

}  // namespace ferry::media
