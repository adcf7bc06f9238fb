#include "runner/static_program/attention_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace ferry::runner {
namespace {

Result<MaskValues> code_values(DType dtype, const std::optional<Encoding>& encoding,
                               const std::string& port) {
  if (!encoding || !encoding->fits(dtype)) {
    return bad_input(fmt::format("{}: a mask of {} needs an encoding in which 0 is a code", port,
                                 dtype_name(dtype)));
  }
  if (encoding->real(0) > kLeastMasked) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: the lowest number of its encoding is {:g}, which masks nothing: "
                            "at most {:g} is needed",
                            port, encoding->real(0), kLeastMasked));
  }
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  return MaskValues{{static_cast<uint32_t>(encoding->zero_point), bytes}, {0, bytes}};
}

}  // namespace

Result<MaskValues> mask_values(DType dtype, const std::optional<Encoding>& encoding,
                               const std::string& port) {
  switch (dtype) {
    case DType::kF32:
      return MaskValues{{0, 4}, {std::bit_cast<uint32_t>(kMaskedF32), 4}};
    case DType::kF16:
      return MaskValues{{0, 2}, {f32_to_f16(kMaskedF16), 2}};
    case DType::kBF16:
      return MaskValues{{0, 2}, {f32_to_bf16(kMaskedBF16), 2}};
    case DType::kU8:
    case DType::kU16:
      return code_values(dtype, encoding, port);
    default:
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: a mask of {}; supported are f32, f16, bf16, u16 and u8", port,
                              dtype_name(dtype)));
  }
}

AttentionMask::AttentionMask(const MaskValues& values, int64_t ar, int64_t cl,
                             std::optional<int64_t> window)
    : values_(values),
      ar_(ar),
      cl_(cl),
      window_(window),
      bytes_(index(ar * cl) * values.attend.bytes) {
  offsets_.reserve(index(ar));
  fill(bytes_.data(), index(ar * cl), values_.masked);
}

int64_t AttentionMask::first_seen(int64_t n, int32_t offset) const {
  return window_ ? std::clamp<int64_t>(n + offset + 1 - *window_, 0, n) : 0;
}

void AttentionMask::set(int64_t row, int64_t begin, int64_t end, Element value) {
  if (begin >= end) return;
  fill(bytes_.data() + index(row * cl_ + begin) * value.bytes, index(end - begin), value);
}

void AttentionMask::init(std::span<const int32_t> parents, std::span<const int32_t> offsets,
                         int64_t n_past) {
  n_past_ = n_past;
  offsets_.assign(offsets.begin(), offsets.end());
  fill(bytes_.data(), index(ar_ * cl_), values_.masked);
  for (int64_t row = 0; row < std::ssize(parents); ++row) init_row(row, parents);
  for (int64_t row = 0; row < ar_; ++row)
    set(row, cl_ - ar_ + row, cl_ - ar_ + row + 1, values_.attend);
}

void AttentionMask::init_row(int64_t row, std::span<const int32_t> parents) {
  const int32_t parent = parents[index(row)];
  if (parent >= 0) {
    const size_t row_bytes = index(cl_) * values_.attend.bytes;
    std::memcpy(bytes_.data() + index(row) * row_bytes, bytes_.data() + index(parent) * row_bytes,
                row_bytes);
    set(row, cl_ - ar_ + parent, cl_ - ar_ + parent + 1, values_.attend);
  }
  const int64_t first = first_seen(n_past_, offsets_[index(row)]);
  set(row, 0, first, values_.masked);
  if (parent < 0) set(row, first, n_past_, values_.attend);
  hide_new_columns(row);
}

// Masks ancestors outside of the window. Columns of other tokens are masked anyway.
void AttentionMask::hide_new_columns(int64_t row) {
  if (!window_) return;
  for (int64_t column = 0; column < row; ++column) {
    const int64_t distance = int64_t{offsets_[index(row)]} - offsets_[index(column)];
    if (distance >= *window_) set(row, cl_ - ar_ + column, cl_ - ar_ + column + 1, values_.masked);
  }
}

void AttentionMask::see_later(int64_t row, int64_t end, bool seen) {
  const int64_t first = cl_ - ar_;
  set(row, first + row + 1, first + end, seen ? values_.attend : values_.masked);
}

void AttentionMask::update(int64_t n_update) {
  const int64_t n = n_past_ + n_update;
  for (int64_t row = 0; row < std::ssize(offsets_); ++row) {
    const int64_t before = first_seen(n_past_, offsets_[index(row)]);
    const int64_t now = first_seen(n, offsets_[index(row)]);
    set(row, before, std::min(now, n_past_), values_.masked);
    set(row, std::max(now, n_past_), n, values_.attend);
  }
  n_past_ = n;
}

}  // namespace ferry::runner
