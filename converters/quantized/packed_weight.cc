#include "converters/quantized/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr int kWordBits = 32;
// Output c of eight is at place kAwqPlaces[c] of an integer of AWQ, whose places hold the outputs 0
// 2 4 6 1 3 5 7.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

class PackedDerivation final : public FloatDerivation {
 public:
  explicit PackedDerivation(const PackedWeight& weight) : w_(weight), per_(kWordBits / w_.bits) {}

  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override {
    const int64_t count = static_cast<int64_t>(out.size()) / w_.inputs;
    const std::vector<size_t> group_of = FERRY_TRY(read_groups(source));
    std::vector<uint8_t> codes(out.size());
    FERRY_RETURN_IF_ERROR(unpack(source, w_.codes, first, count, w_.inputs, codes.data()));
    const std::vector<int> zeros = FERRY_TRY(read_zeros(source, first, count));
    const std::vector<float> scales = FERRY_TRY(read_scales(source, first, count));
    for (int64_t o = 0; o < count; ++o) {
      const auto row = static_cast<size_t>(o * w_.inputs), of = static_cast<size_t>(o * w_.groups);
      for (size_t i = 0; i < group_of.size(); ++i) {
        const size_t g = of + group_of[i];
        out[row + i] = static_cast<float>(codes[row + i] - zeros[g]) * scales[g];
      }
    }
    return {};
  }

  // Columns of a group must follow each other, and every zero point must be the middle code.
  Result<std::optional<StoredCodes>> codes(const TensorSource& source) const override {
    const std::optional<StoredCodes> none;
    const int64_t size = w_.group_size > 0 ? w_.group_size : w_.inputs / w_.groups;
    if (size <= 0 || size * w_.groups != w_.inputs) return none;
    const std::vector<size_t> group_of = FERRY_TRY(read_groups(source));
    for (size_t i = 0; i < group_of.size(); ++i) {
      if (group_of[i] != i / static_cast<size_t>(size)) return none;
    }
    if (w_.zeros || w_.plain_zeros) {
      constexpr int64_t kRows = 1024;
      for (int64_t first = 0; first < w_.outputs; first += kRows) {
        const std::vector<int> zeros =
            FERRY_TRY(read_zeros(source, first, std::min(kRows, w_.outputs - first)));
        const int middle = 1 << (w_.bits - 1);
        if (std::ranges::any_of(zeros, [&](int zero) { return zero != middle; })) return none;
      }
    }
    return std::optional(StoredCodes{w_.bits, size});
  }

  Status read_codes(const TensorSource& source, int64_t first, std::span<int8_t> codes,
                    std::span<float> scales) const override {
    const int64_t count = std::ssize(codes) / w_.inputs;
    std::vector<uint8_t> stored(codes.size());
    FERRY_RETURN_IF_ERROR(unpack(source, w_.codes, first, count, w_.inputs, stored.data()));
    const int middle = 1 << (w_.bits - 1);
    std::ranges::transform(stored, codes.begin(),
                           [&](uint8_t code) { return static_cast<int8_t>(code - middle); });
    std::ranges::copy(FERRY_TRY(read_scales(source, first, count)), scales.begin());
    return {};
  }

 private:
  // Returns the group of each input.
  Result<std::vector<size_t>> read_groups(const TensorSource& source) const {
    const auto inputs = static_cast<size_t>(w_.inputs);
    std::vector<size_t> groups(inputs);
    for (size_t i = 0; i < inputs; ++i) groups[i] = i / static_cast<size_t>(w_.group_size);
    if (!w_.group_of) return groups;
    std::vector<int32_t> stored(inputs);
    FERRY_RETURN_IF_ERROR(source.read(*w_.group_of, 0, std::as_writable_bytes(std::span(stored))));
    const auto left = [](int32_t group) { return group == -1; };
    if (w_.may_leave_groups && std::ranges::all_of(stored, left)) return groups;
    for (size_t i = 0; i < inputs; ++i) {
      if (stored[i] < 0 || stored[i] >= w_.groups) {
        return bad_input(fmt::format("{}: {} names group {} of {}", printable(source.path()),
                                     quoted(source.entries()[*w_.group_of].name), stored[i],
                                     w_.groups));
      }
      groups[i] = static_cast<size_t>(stored[i]);
    }
    return groups;
  }

  Result<std::vector<int>> read_zeros(const TensorSource& source, int64_t first,
                                      int64_t count) const {
    const int codes = 1 << w_.bits;
    std::vector<int> zeros(static_cast<size_t>(count * w_.groups), codes / 2);
    if (w_.plain_zeros) {
      std::vector<int8_t> stored(zeros.size());
      FERRY_RETURN_IF_ERROR(source.read(*w_.plain_zeros, static_cast<uint64_t>(first * w_.groups),
                                        std::as_writable_bytes(std::span(stored))));
      for (size_t i = 0; i < zeros.size(); ++i) zeros[i] += stored[i];
    } else if (w_.zeros) {
      std::vector<uint8_t> stored(zeros.size());
      FERRY_RETURN_IF_ERROR(unpack(source, *w_.zeros, first, count, w_.groups, stored.data()));
      const int offset = static_cast<int>(w_.zero_offset);
      for (size_t i = 0; i < zeros.size(); ++i) zeros[i] = (stored[i] + offset) % codes;
    }
    return zeros;
  }

  Result<std::vector<float>> read_scales(const TensorSource& source, int64_t first,
                                         int64_t count) const {
    std::vector<float> scales(static_cast<size_t>(count * w_.groups));
    if (!w_.scales_across) {
      FERRY_RETURN_IF_ERROR(
          read_floats(source, w_.scales, static_cast<uint64_t>(first * w_.groups), scales));
      return scales;
    }
    std::vector<float> line(static_cast<size_t>(count));
    for (int64_t g = 0; g < w_.groups; ++g) {
      const auto at = static_cast<uint64_t>(g * w_.outputs + first);
      FERRY_RETURN_IF_ERROR(read_floats(source, w_.scales, at, line));
      for (size_t o = 0; o < line.size(); ++o) {
        scales[o * static_cast<size_t>(w_.groups) + static_cast<size_t>(g)] = line[o];
      }
    }
    return scales;
  }

  // Unpacks the integers of outputs [first, first + count) and all `width` inputs, row by row of
  // outputs. A line of the stored matrix has all outputs for some inputs, or all inputs for some
  // outputs.
  Status unpack(const TensorSource& source, const PackedIntegers& packed, int64_t first,
                int64_t count, int64_t width, uint8_t* out) const {
    const Shape& stored = source.entries()[packed.entry].shape;
    const bool across = packed.outputs_across, packs = packed.packs_outputs;
    const int64_t begin = packs ? first / per_ : first;
    const int64_t end = packs ? (first + count + per_ - 1) / per_ : first + count;
    std::vector<uint32_t> line(static_cast<size_t>(across ? end - begin : stored[1]));
    const int64_t lines = across ? stored[0] : end - begin;
    for (int64_t l = 0; l < lines; ++l) {
      const int64_t at = across ? l * stored[1] + begin : (begin + l) * stored[1];
      FERRY_RETURN_IF_ERROR(source.read(packed.entry, static_cast<uint64_t>(at) * sizeof(uint32_t),
                                        std::as_writable_bytes(std::span(line))));
      for (size_t w = 0; w < line.size(); ++w) {
        const int64_t word = static_cast<int64_t>(w);
        const int64_t output = across ? word : l, input = across ? l : word;
        const int64_t o = packs ? (begin + output) * per_ - first : output;
        spread(line[w], packed, o, packs ? input : input * per_, count, width, out);
      }
    }
    return {};
  }

  // Writes the integers of one word. The first one belongs to output `o` and input `i`. Integers
  // outside of the matrix only fill up the word.
  void spread(uint32_t word, const PackedIntegers& packed, int64_t o, int64_t i, int64_t count,
              int64_t width, uint8_t* out) const {
    const auto mask = static_cast<uint32_t>((1 << w_.bits) - 1);
    for (int64_t k = 0; k < per_; ++k) {
      const int place = packed.awq_order ? kAwqPlaces[static_cast<size_t>(k)] : static_cast<int>(k);
      const int64_t row = packed.packs_outputs ? o + k : o;
      const int64_t column = packed.packs_outputs ? i : i + k;
      if (row < 0 || row >= count || column >= width) continue;
      out[row * width + column] = static_cast<uint8_t>(word >> (w_.bits * place) & mask);
    }
  }

  PackedWeight w_;
  int64_t per_;
};

}  // namespace

std::unique_ptr<Derivation> decode_packed(const PackedWeight& weight) {
  return std::make_unique<PackedDerivation>(weight);
}

}  // namespace ferry::converters
