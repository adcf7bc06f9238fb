// Linked into ferry_wrong: the linker wraps quantize_rows() (--wrap), and its results are made
// wrong in the manner that FERRY_WRONG names. The names are those of coded_kinds.cc.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "graph/quantization/scheme.h"

namespace ferry::mutation {
namespace {

using graph::QuantizationScheme;
using Bytes = std::span<std::byte>;

struct Coded {
  const QuantizationScheme& scheme;
  int64_t columns;
  Bytes codes, scales;
  size_t scale_size() const { return static_cast<size_t>(dtype_bytes(scheme.scale_dtype)); }
};

// Gives every group the scale of the previous group.
void shift_scales(const Coded& coded) {
  const size_t size = coded.scale_size();
  std::rotate(coded.scales.begin(), coded.scales.end() - static_cast<std::ptrdiff_t>(size),
              coded.scales.end());
}

void double_scales(const Coded& coded) {
  const size_t size = coded.scale_size();
  for (size_t at = 0; at < coded.scales.size(); at += size) {
    float scale = 0;
    to_f32(coded.scheme.scale_dtype, &coded.scales[at], &scale, 1);
    scale *= 2;
    from_f32(coded.scheme.scale_dtype, &scale, &coded.scales[at], 1);
  }
}

// Exchanges neighbouring columns, which is the other order of nibbles.
void swap_columns(const Coded& coded) {
  for (size_t i = 0; i + 1 < coded.codes.size(); i += coded.scheme.bits == 8 ? 2 : 1) {
    if (coded.scheme.bits == 8) {
      std::swap(coded.codes[i], coded.codes[i + 1]);
    } else {
      coded.codes[i] = coded.codes[i] << 4 | coded.codes[i] >> 4;
    }
  }
}

// Gives every row the codes of the previous row.
void shift_rows(const Coded& coded) {
  const auto row = static_cast<std::ptrdiff_t>(coded.scheme.code_bytes(coded.columns));
  std::rotate(coded.codes.begin(), coded.codes.end() - row, coded.codes.end());
}

void make_wrong(const std::string& name, const Coded& coded) {
  if (name == "codes_shifted_scales") shift_scales(coded);
  if (name == "codes_doubled_scales") double_scales(coded);
  if (name == "codes_swapped_columns") swap_columns(coded);
  if (name == "codes_shifted_rows") shift_rows(coded);
}

}  // namespace

uint64_t
real_quantize_rows(const QuantizationScheme& scheme, std::span<const float> values, int64_t columns, Bytes codes, Bytes scales) __asm__(
    "__real_"
    "_ZN5ferry5graph13quantize_rowsERKNS0_18QuantizationSchemeE"
    "St4spanIKfLm18446744073709551615EElS4_ISt4byteLm18446744073709551615EE"
    "S8_");
uint64_t
wrapped_quantize_rows(const QuantizationScheme& scheme, std::span<const float> values, int64_t columns, Bytes codes, Bytes scales) __asm__(
    "__wrap_"
    "_ZN5ferry5graph13quantize_rowsERKNS0_18QuantizationSchemeE"
    "St4spanIKfLm18446744073709551615EElS4_ISt4byteLm18446744073709551615EE"
    "S8_");

uint64_t wrapped_quantize_rows(const QuantizationScheme& scheme, std::span<const float> values,
                               int64_t columns, Bytes codes, Bytes scales) {
  const uint64_t non_finite = real_quantize_rows(scheme, values, columns, codes, scales);
  const char* name = std::getenv("FERRY_WRONG");
  if (name != nullptr) make_wrong(name, {scheme, columns, codes, scales});
  return non_finite;
}

}  // namespace ferry::mutation
