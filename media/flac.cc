// FLAC: frames of predicted samples and coded residuals. Source: RFC 9639.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string_view>

#include "media/sound_codecs.h"

namespace ferry::media {
namespace {

constexpr uint64_t kMetadataHeader = 4, kStreamInfoBytes = 34;
constexpr int kMostFlacChannels = 8, kMostOrder = 32;

using FlacBytes = std::span<const std::byte>;

template <class Register, int Bits>
constexpr std::array<Register, 256> checksum_table(uint32_t polynomial) {
  std::array<Register, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i << (Bits - 8);
    for (int bit = 0; bit < 8; ++bit) {
      value = value << 1 ^ ((value >> (Bits - 1) & 1) != 0 ? polynomial : 0);
    }
    table[i] = static_cast<Register>(value);
  }
  return table;
}
constexpr auto kCrc8 = checksum_table<uint8_t, 8>(0x07);
constexpr auto kCrc16 = checksum_table<uint16_t, 16>(0x8005);

uint8_t crc8(FlacBytes bytes) {
  uint8_t crc = 0;
  for (const std::byte byte : bytes) crc = kCrc8[crc ^ static_cast<uint8_t>(byte)];
  return crc;
}
uint16_t crc16(FlacBytes bytes) {
  uint16_t crc = 0;
  for (const std::byte byte : bytes) {
    crc = static_cast<uint16_t>(crc << 8 ^ kCrc16[(crc >> 8) ^ static_cast<uint8_t>(byte)]);
  }
  return crc;
}

// Bits from the most significant one on. Reading beyond the end gives zeros and sets failed().
class Bits {
 public:
  Bits(FlacBytes bytes, uint64_t at) : bytes_(bytes), bit_(at * 8) {}

  // `count` is at most 57.
  uint64_t unsigned_bits(int count) {
    if (bit_ + static_cast<uint64_t>(count) > bytes_.size() * 8) {
      failed_ = true;
      return 0;
    }
    uint64_t value = 0;
    const uint64_t first = bit_ / 8;
    const int before = static_cast<int>(bit_ % 8);
    const int whole = (before + count + 7) / 8;
    for (int i = 0; i < whole; ++i) {
      value = value << 8 | static_cast<uint64_t>(bytes_[first + static_cast<uint64_t>(i)]);
    }
    bit_ += static_cast<uint64_t>(count);
    value >>= whole * 8 - before - count;
    return count == 0 ? 0 : value & ((uint64_t{1} << count) - 1);
  }
  int64_t signed_bits(int count) {
    if (count == 0) return 0;
    const uint64_t value = unsigned_bits(count);
    const uint64_t sign = uint64_t{1} << (count - 1);
    return static_cast<int64_t>((value ^ sign) - sign);
  }
  // Returns the number of zeros before the next one.
  uint64_t unary() {
    uint64_t zeros = 0;
    while (!failed_ && unsigned_bits(1) == 0) zeros += 1;
    return zeros;
  }
  void align() { bit_ = (bit_ + 7) / 8 * 8; }
  uint64_t byte() const { return bit_ / 8; }
  bool failed() const { return failed_; }

 private:
  FlacBytes bytes_;
  uint64_t bit_;
  bool failed_ = false;
};

struct StreamInfo {
  int64_t rate = 0, samples = 0;  // samples: 0 where the encoder did not know
  int channels = 0, bits = 0;
};

struct FrameHeader {
  int64_t block = 0;
  int channels = 0;
  enum class Stereo { kNone, kLeftSide, kSideRight, kMidSide } stereo = Stereo::kNone;
};

class FlacDecoder {
 public:
  FlacDecoder(FlacBytes file, const std::string& where) : file_(file), where_(where) {}

  Result<Sound> run() {
    FERRY_RETURN_IF_ERROR(read_metadata());
    FERRY_RETURN_IF_ERROR(
        check_sound(info_.rate, info_.channels, std::max<int64_t>(1, info_.samples), where_));
    Sound sound{info_.rate, info_.channels, {}};
    while (at_ < file_.size() &&
           (info_.samples == 0 || std::ssize(sound.samples) < info_.samples)) {
      FERRY_RETURN_IF_ERROR(read_frame(sound));
    }
    if (std::ssize(sound.samples) < info_.samples) return damaged("the file ends early");
    if (info_.samples != 0 && std::ssize(sound.samples) > info_.samples) {
      return damaged("has more samples than its header states");
    }
    FERRY_RETURN_IF_ERROR(
        check_sound(info_.rate, info_.channels, std::ssize(sound.samples), where_));
    return sound;
  }

 private:
  Failure damaged(std::string_view what) const {
    return bad_input(fmt::format("{}: damaged FLAC: {}", where_, what));
  }

  Status read_metadata() {
    at_ = 4;
    for (bool first = true, last = false; !last; first = false) {
      if (file_.size() - at_ < kMetadataHeader) return damaged("the file ends early");
      Bits bits(file_, at_);
      last = bits.unsigned_bits(1) != 0;
      const uint64_t type = bits.unsigned_bits(7);
      const uint64_t length = bits.unsigned_bits(24);
      at_ += kMetadataHeader;
      if (length > file_.size() - at_) return damaged("the file ends early");
      if (first && (type != 0 || length != kStreamInfoBytes)) return damaged("no STREAMINFO");
      if (first) read_stream_info();
      at_ += length;
    }
    if (info_.bits < 4) return damaged(fmt::format("samples of {} bits", info_.bits));
    return {};
  }

  void read_stream_info() {
    Bits bits(file_, at_ + 10);  // behind sizes of blocks and frames
    info_.rate = static_cast<int64_t>(bits.unsigned_bits(20));
    info_.channels = static_cast<int>(bits.unsigned_bits(3)) + 1;
    info_.bits = static_cast<int>(bits.unsigned_bits(5)) + 1;
    info_.samples = static_cast<int64_t>(bits.unsigned_bits(36));
  }

  // Skips the number of a frame or sample, which has the form of UTF-8.
  static bool skip_number(Bits& bits) {
    const auto first = static_cast<uint8_t>(bits.unsigned_bits(8));
    const int ones = std::countl_one(first);
    if (ones == 1 || ones == 8) return false;
    for (int i = 1; i < ones; ++i) {
      if (bits.unsigned_bits(8) >> 6 != 2) return false;
    }
    return true;
  }

  static int64_t block_size(Bits& bits, uint64_t code) {
    if (code == 1) return 192;
    if (code >= 2 && code <= 5) return int64_t{144} << code;
    if (code == 6) return static_cast<int64_t>(bits.unsigned_bits(8)) + 1;
    if (code == 7) return static_cast<int64_t>(bits.unsigned_bits(16)) + 1;
    return code == 0 ? 0 : int64_t{1} << code;
  }

  // Returns the rate that a frame states; 0 for that of the stream, -1 for a bad code.
  static int64_t frame_rate(Bits& bits, uint64_t code) {
    constexpr std::array<int64_t, 12> kRates = {0,     88200, 176400, 192000, 8000,  16000,
                                                22050, 24000, 32000,  44100,  48000, 96000};
    if (code < kRates.size()) return kRates[code];
    if (code == 12) return 1000 * static_cast<int64_t>(bits.unsigned_bits(8));
    if (code == 13) return static_cast<int64_t>(bits.unsigned_bits(16));
    if (code == 14) return 10 * static_cast<int64_t>(bits.unsigned_bits(16));
    return -1;
  }

  Result<FrameHeader> read_header(Bits& bits) const {
    FrameHeader header;
    if (bits.unsigned_bits(15) != 0x7FFC) return damaged("no frame where one should begin");
    bits.unsigned_bits(1);
    const uint64_t size_code = bits.unsigned_bits(4), rate_code = bits.unsigned_bits(4);
    const uint64_t layout = bits.unsigned_bits(4), bits_code = bits.unsigned_bits(3);
    const bool reserved = bits.unsigned_bits(1) != 0;
    if (reserved || !skip_number(bits)) return damaged("a frame header");
    header.block = block_size(bits, size_code);
    const int64_t rate = frame_rate(bits, rate_code);
    const uint64_t end = bits.byte();
    const uint64_t crc = bits.unsigned_bits(8);
    if (bits.failed()) return damaged("the file ends early");
    if (crc != crc8(file_.subspan(at_, end - at_))) {
      return damaged("the checksum of a frame header");
    }
    constexpr std::array<int, 8> kBits = {0, 8, 12, -1, 16, 20, 24, 32};
    const int width = kBits[bits_code];
    if (header.block < 1 || layout > 10 || (rate != 0 && rate != info_.rate) ||
        (width != 0 && width != info_.bits)) {
      return damaged("a frame of another form than the stream's");
    }
    header.channels = layout < 8 ? static_cast<int>(layout) + 1 : 2;
    if (layout >= 8) header.stereo = static_cast<FrameHeader::Stereo>(layout - 7);
    if (header.channels != info_.channels) return damaged("a frame with other channels");
    return header;
  }

  Status read_frame(Sound& sound) {
    using enum FrameHeader::Stereo;
    Bits bits(file_, at_);
    const FrameHeader header = FERRY_TRY(read_header(bits));
    const int64_t total = std::ssize(sound.samples) + header.block;
    if (total > kMostSamples) return check_sound(info_.rate, info_.channels, total, where_);
    for (int c = 0; c < header.channels; ++c) {
      const bool side = (header.stereo == kLeftSide && c == 1) ||
                        (header.stereo == kSideRight && c == 0) ||
                        (header.stereo == kMidSide && c == 1);
      std::vector<int64_t>& samples = channels_[static_cast<size_t>(c)];
      samples.assign(static_cast<size_t>(header.block), 0);
      if (!read_subframe(bits, info_.bits + (side ? 1 : 0), samples)) {
        return damaged(bits.failed() ? "the file ends early" : "a subframe");
      }
    }
    bits.align();
    const uint64_t end = bits.byte();
    const uint64_t crc = bits.unsigned_bits(16);
    if (bits.failed()) return damaged("the file ends early");
    if (crc != crc16(file_.subspan(at_, end - at_))) return damaged("the checksum of a frame");
    at_ = end + 2;
    join_stereo(header);
    append(header, sound);
    return {};
  }

  void join_stereo(const FrameHeader& header) {
    using enum FrameHeader::Stereo;
    std::vector<int64_t>&a = channels_[0], &b = channels_[1];
    for (size_t i = 0; header.stereo != kNone && i < a.size(); ++i) {
      if (header.stereo == kLeftSide) b[i] = a[i] - b[i];
      if (header.stereo == kSideRight) a[i] += b[i];
      if (header.stereo == kMidSide) {
        const int64_t mid = a[i] * 2 + (b[i] & 1);
        a[i] = (mid + b[i]) >> 1;
        b[i] = (mid - b[i]) >> 1;
      }
    }
  }

  void append(const FrameHeader& header, Sound& sound) const {
    const double unit = std::ldexp(1.0, 1 - info_.bits);
    for (size_t i = 0; i < static_cast<size_t>(header.block); ++i) {
      sound.samples.push_back(mean_of(header.channels, [&](int c) {
        const int64_t value = channels_[static_cast<size_t>(c)][i];
        return static_cast<float>(static_cast<double>(value) * unit);
      }));
    }
  }

  // Reads the samples of one channel, of `width` bits. Returns false for a damaged subframe.
  static bool read_subframe(Bits& bits, int width, std::vector<int64_t>& samples) {
    if (bits.unsigned_bits(1) != 0) return false;
    const auto type = static_cast<int>(bits.unsigned_bits(6));
    int wasted = 0;
    if (bits.unsigned_bits(1) != 0) {
      const uint64_t zeros = bits.unary();
      if (bits.failed() || zeros + 1 >= static_cast<uint64_t>(width)) return false;
      wasted = static_cast<int>(zeros) + 1;
    }
    width -= wasted;
    if (!read_samples(bits, type, width, samples)) return false;
    for (int64_t& sample : samples) sample *= int64_t{1} << wasted;
    return !bits.failed();
  }

  static bool read_samples(Bits& bits, int type, int width, std::vector<int64_t>& samples) {
    if (type == 0) {
      samples.assign(samples.size(), bits.signed_bits(width));
      return true;
    }
    if (type == 1) {
      for (int64_t& sample : samples) sample = bits.signed_bits(width);
      return true;
    }
    if (type >= 8 && type <= 12) {
      constexpr std::array<std::array<int64_t, 4>, 5> kFixed = {
          {{}, {1}, {2, -1}, {3, -3, 1}, {4, -6, 4, -1}}};
      const auto order = static_cast<size_t>(type - 8);
      return read_predicted(bits, width, std::span(kFixed[order]).first(order), 0, samples);
    }
    if (type < 32) return false;
    return read_linear(bits, static_cast<size_t>(type - 31), width, samples);
  }

  static bool read_linear(Bits& bits, size_t order, int width, std::vector<int64_t>& samples) {
    if (order > samples.size()) return false;
    // The warm-up samples come before the coefficients.
    for (size_t i = 0; i < order; ++i) samples[i] = bits.signed_bits(width);
    const auto precision = static_cast<int>(bits.unsigned_bits(4)) + 1;
    const int64_t shift = bits.signed_bits(5);
    if (precision == 16 || shift < 0) return false;
    std::array<int64_t, kMostOrder> taps{};
    for (size_t i = 0; i < order; ++i) taps[i] = bits.signed_bits(precision);
    return read_residual(bits, order, samples) &&
           predict(width, std::span(taps).first(order), static_cast<int>(shift), samples);
  }

  static bool read_predicted(Bits& bits, int width, std::span<const int64_t> taps, int shift,
                             std::vector<int64_t>& samples) {
    if (taps.size() > samples.size()) return false;
    for (size_t i = 0; i < taps.size(); ++i) samples[i] = bits.signed_bits(width);
    return read_residual(bits, taps.size(), samples) && predict(width, taps, shift, samples);
  }

  // Adds the predictions to the residuals behind the warm-up samples. Samples that do not fit
  // `width` bits are damage, and so no sum overflows.
  static bool predict(int width, std::span<const int64_t> taps, int shift,
                      std::vector<int64_t>& samples) {
    const int64_t limit = int64_t{1} << (width - 1);
    for (size_t i = taps.size(); i < samples.size(); ++i) {
      int64_t sum = 0;
      for (size_t k = 0; k < taps.size(); ++k) sum += taps[k] * samples[i - 1 - k];
      samples[i] += sum >> shift;
      if (samples[i] < -limit || samples[i] >= limit) return false;
    }
    return true;
  }

  // Reads the residuals of the samples from `order` on, in partitions of Rice codes.
  static bool read_residual(Bits& bits, size_t order, std::vector<int64_t>& samples) {
    const uint64_t method = bits.unsigned_bits(2);
    const uint64_t partition_order = bits.unsigned_bits(4);
    if (method > 1) return false;
    const int parameter_bits = method == 0 ? 4 : 5;
    const size_t part = samples.size() >> partition_order;
    if (part << partition_order != samples.size() || part < order) return false;
    size_t at = order;
    for (size_t end = part; end <= samples.size(); end += part) {
      const auto parameter = static_cast<int>(bits.unsigned_bits(parameter_bits));
      const bool plain = parameter == (1 << parameter_bits) - 1;
      const int plain_bits = plain ? static_cast<int>(bits.unsigned_bits(5)) : 0;
      for (; at < end; ++at) {
        if (bits.failed()) return false;
        if (plain) {
          samples[at] = bits.signed_bits(plain_bits);
          continue;
        }
        const uint64_t quotient = bits.unary();
        if (quotient >> 33 != 0) return false;
        const uint64_t folded = quotient << parameter | bits.unsigned_bits(parameter);
        if (folded >> 33 != 0) return false;
        samples[at] = static_cast<int64_t>(folded >> 1) ^ -static_cast<int64_t>(folded & 1);
      }
    }
    return true;
  }

  FlacBytes file_;
  const std::string& where_;
  uint64_t at_ = 0;
  StreamInfo info_;
  std::array<std::vector<int64_t>, kMostFlacChannels> channels_;
};

}  // namespace

bool is_flac(std::span<const std::byte> file) {
  return file.size() >= 4 && file[0] == std::byte{'f'} && file[1] == std::byte{'L'} &&
         file[2] == std::byte{'a'} && file[3] == std::byte{'C'};
}

Result<Sound> decode_flac(std::span<const std::byte> file, const std::string& where) {
  return FlacDecoder(file, where).run();
}

}  // namespace ferry::media
