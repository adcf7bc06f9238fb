// WAV: chunks of a RIFF file. Source: Multimedia Programming Interface and Data Specifications 1.0,
// and Microsoft's WAVEFORMATEXTENSIBLE.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/checked.h"
#include "media/little_endian.h"
#include "media/sound_codecs.h"

namespace ferry::media {
namespace {

constexpr uint64_t kRiffHeader = 12, kChunkHeader = 8, kFormatBytes = 16, kExtensibleBytes = 40;
constexpr int kPcm = 1, kFloat = 3, kExtensible = 0xFFFE;
// Programs that write a stream do not know the length, and state one of at least this.
constexpr uint64_t kUnknownLength = 0x7FFFF000;
// These bytes follow the format number in the GUID of an extensible format.
constexpr std::array<uint8_t, 14> kGuidTail = {0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80,
                                               0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71};

using WavBytes = std::span<const std::byte>;

std::string_view tag_at(WavBytes file, uint64_t at) {
  return {reinterpret_cast<const char*>(file.data()) + at, 4};
}

struct WavFormat {
  int code = 0;  // kPcm or kFloat
  int channels = 0, bits = 0;
  int64_t rate = 0;
  uint64_t frame() const { return static_cast<uint64_t>(channels * bits / 8); }
};

Result<WavFormat> read_format(WavBytes chunk, const std::string& where) {
  if (chunk.size() < kFormatBytes) return bad_input(where + ": damaged WAV: a short fmt chunk");
  WavFormat format;
  format.code = static_cast<int>(little_endian(chunk, 0, 2));
  format.channels = static_cast<int>(little_endian(chunk, 2, 2));
  format.rate = static_cast<int64_t>(little_endian(chunk, 4, 4));
  const uint64_t frame = little_endian(chunk, 12, 2);
  format.bits = static_cast<int>(little_endian(chunk, 14, 2));
  if (format.code == kExtensible) {
    if (chunk.size() < kExtensibleBytes) {
      return bad_input(where + ": damaged WAV: a short fmt chunk of the extensible form");
    }
    const bool known = std::memcmp(chunk.data() + 26, kGuidTail.data(), kGuidTail.size()) == 0;
    format.code = known ? static_cast<int>(little_endian(chunk, 24, 2)) : 0;
  }
  const bool integers = format.code == kPcm && (format.bits == 8 || format.bits == 16 ||
                                                format.bits == 24 || format.bits == 32);
  const bool floats = format.code == kFloat && (format.bits == 32 || format.bits == 64);
  if (!integers && !floats) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: WAV of format {} with {} bits: integers of 8, 16, 24 and 32 bits "
                            "and floats of 32 and 64 are supported",
                            where, format.code, format.bits));
  }
  if (format.channels < 1 || frame != format.frame()) {
    return bad_input(fmt::format("{}: damaged WAV: {} bytes for {} channels of {} bits", where,
                                 frame, format.channels, format.bits));
  }
  return format;
}

struct WavParts {
  WavFormat format;
  WavBytes data;
};

// Finds the chunks fmt and data. Chunks begin at even offsets.
Result<WavParts> find_parts(WavBytes file, const std::string& where) {
  WavParts parts;
  for (uint64_t at = kRiffHeader; file.size() - at >= kChunkHeader;) {
    const std::string_view tag = tag_at(file, at);
    const uint64_t stated = little_endian(file, at + 4, 4);
    at += kChunkHeader;
    const uint64_t rest = file.size() - at;
    const bool endless = tag == "data" && stated >= kUnknownLength && stated > rest;
    if (stated > rest && !endless) return bad_input(where + ": damaged WAV: the file ends early");
    const WavBytes chunk = file.subspan(at, std::min(stated, rest));
    if (tag == "fmt ") parts.format = FERRY_TRY(read_format(chunk, where));
    if (tag == "data") {
      if (parts.format.code == 0) return bad_input(where + ": damaged WAV: no fmt before the data");
      const uint64_t frame = parts.format.frame();
      if (!endless && stated % frame != 0) {
        return bad_input(fmt::format("{}: damaged WAV: {} bytes of data are not whole frames of {}",
                                     where, stated, frame));
      }
      parts.data = chunk.first(chunk.size() - chunk.size() % frame);
      return parts;
    }
    at += std::min(rest, stated + stated % 2);
  }
  return bad_input(where + ": damaged WAV: no data chunk");
}

float sample_at(const std::byte* at, const WavFormat& format) {
  const WavBytes bytes(at, static_cast<size_t>(format.bits / 8));
  const uint64_t raw = little_endian(bytes, 0, format.bits / 8);
  if (format.code == kFloat) {
    return format.bits == 32 ? std::bit_cast<float>(static_cast<uint32_t>(raw))
                             : static_cast<float>(std::bit_cast<double>(raw));
  }
  if (format.bits == 8) return (static_cast<float>(raw) - 128.0F) / 128.0F;
  // The sign bit is moved to the top.
  const auto whole = static_cast<int32_t>(static_cast<uint32_t>(raw) << (32 - format.bits));
  return static_cast<float>(static_cast<double>(whole) / 2147483648.0);
}

}  // namespace

bool is_wav(std::span<const std::byte> file) {
  return file.size() >= kRiffHeader && tag_at(file, 0) == "RIFF" && tag_at(file, 8) == "WAVE";
}

Result<Sound> decode_wav(std::span<const std::byte> file, const std::string& where) {
  const WavParts parts = FERRY_TRY(find_parts(file, where));
  const WavFormat& format = parts.format;
  const uint64_t frame = format.frame();
  const uint64_t count = parts.data.size() / frame;
  FERRY_RETURN_IF_ERROR(
      check_sound(format.rate, format.channels, static_cast<int64_t>(count), where));
  Sound sound{format.rate, format.channels, std::vector<float>(count)};
  const uint64_t width = static_cast<uint64_t>(format.bits / 8);
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* at = parts.data.data() + i * frame;
    sound.samples[i] = mean_of(format.channels, [&](int c) {
      return sample_at(at + static_cast<uint64_t>(c) * width, format);
    });
    if (!std::isfinite(sound.samples[i])) {
      return bad_input(fmt::format("{}: sample {} is not finite", where, i));
    }
  }
  return sound;
}

}  // namespace ferry::media
