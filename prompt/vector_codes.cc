#include "prompt/vector_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "core/text.h"

namespace ferry::prompt {
namespace {

constexpr std::pair<std::string_view, VectorPrecision> kPrecisions[] = {
    {"f32", VectorPrecision::kF32},
    {"int8", VectorPrecision::kInt8},
    {"uint8", VectorPrecision::kUint8},
    {"binary", VectorPrecision::kBinary},
    {"ubinary", VectorPrecision::kUbinary}};

constexpr std::string_view kNumPyMagic("\x93NUMPY", 6);
constexpr int64_t kMostRows = int64_t{1} << 40;

// The header of a NumPy file: the text that describes the array, and where the values begin.
struct NumPyHeader {
  std::string_view text;
  size_t values = 0;
};

Result<NumPyHeader> numpy_header(std::string_view file, const std::string& name) {
  const bool known =
      file.size() >= 12 && file.starts_with(kNumPyMagic) && file[6] >= 1 && file[6] <= 3;
  if (!known) return bad_input(name + ": not a NumPy file");
  const size_t width = file[6] == 1 ? 2 : 4;  // bytes of the length
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) {
    length |= static_cast<size_t>(static_cast<unsigned char>(file[8 + i])) << (8 * i);
  }
  const size_t begin = 8 + width;
  if (length > file.size() - begin) return bad_input(name + ": cut short in its header");
  return NumPyHeader{file.substr(begin, length), begin + length};
}

// Returns what stands behind 'KEY': in the header.
std::string_view header_value(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size() + 3);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

// Returns the rows of an array of `width` columns; nullopt for another one.
std::optional<int64_t> rows_in(std::string_view header, int64_t width) {
  const bool plain = header_value(header, "descr").starts_with("'<f4'") &&
                     header_value(header, "fortran_order").starts_with("False");
  std::string_view shape = header_value(header, "shape");
  if (!plain || !shape.starts_with('(')) return std::nullopt;
  shape = shape.substr(1, shape.find(')') - 1);
  int64_t rows = 0;
  size_t at = 0;
  for (; at < shape.size() && shape[at] >= '0' && shape[at] <= '9'; ++at) {
    rows = rows * 10 + (shape[at] - '0');
    if (rows > kMostRows) return std::nullopt;
  }
  return at > 0 && shape.substr(at) == fmt::format(", {}", width) ? std::optional(rows)
                                                                  : std::nullopt;
}

}  // namespace

std::optional<VectorPrecision> find_vector_precision(std::string_view name) {
  for (const auto& [known, precision] : kPrecisions) {
    if (known == name) return precision;
  }
  return std::nullopt;
}

Result<VectorRanges> read_vector_ranges(std::span<const std::byte> file, const std::string& name,
                                        int64_t width) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const NumPyHeader header = FERRY_TRY(numpy_header(text, name));
  const auto rows = rows_in(header.text, width);
  if (!rows || *rows < 2) {
    return bad_input(fmt::format("{}: not an f32 array of at least 2 rows of {} values, in C order",
                                 name, width));
  }
  const auto columns = static_cast<size_t>(width);
  const std::string_view values = text.substr(header.values);
  if (values.size() / sizeof(float) / columns < static_cast<uint64_t>(*rows)) {
    return bad_input(fmt::format("{}: cut short: {} rows are stated", name, *rows));
  }
  VectorRanges ranges;
  ranges.least.assign(columns, std::numeric_limits<float>::infinity());
  ranges.largest.assign(columns, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < static_cast<size_t>(*rows) * columns; ++i) {
    float value = 0;
    std::memcpy(&value, values.data() + i * sizeof value, sizeof value);
    if (!std::isfinite(value)) {
      return bad_input(fmt::format("{}: value {} is not finite", name, i));
    }
    float& least = ranges.least[i % columns];
    float& largest = ranges.largest[i % columns];
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  return ranges;
}

VectorCoder::VectorCoder(VectorPrecision precision, VectorRanges ranges)
    : precision_(precision), least_(std::move(ranges.least)) {
  for (size_t i = 0; i < least_.size(); ++i) {
    const float step = (ranges.largest[i] - least_[i]) / 255.0F;
    steps_.push_back(step == 0.0F ? 1.0F : step);
  }
}

std::vector<uint8_t> VectorCoder::codes_of(std::span<const float> vector) const {
  const bool binary = is_binary(precision_);
  std::vector<uint8_t> codes(binary ? (vector.size() + 7) / 8 : vector.size(), 0);
  for (size_t i = 0; i < vector.size(); ++i) {
    if (binary) {
      codes[i / 8] |= vector[i] > 0 ? static_cast<uint8_t>(0x80U >> (i % 8)) : uint8_t{0};
    } else {
      const float place = std::floor((vector[i] - least_[i]) / steps_[i]);
      codes[i] = static_cast<uint8_t>(std::clamp(place, 0.0F, 255.0F));
    }
  }
  // 128 less is the highest bit turned over.
  const bool is_signed =
      precision_ == VectorPrecision::kInt8 || precision_ == VectorPrecision::kBinary;
  if (is_signed) {
    for (uint8_t& code : codes) code ^= 0x80U;
  }
  return codes;
}

}  // namespace ferry::prompt
