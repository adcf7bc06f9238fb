#include "patch/blocks.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "patch/frames.h"

namespace ferry::patch {
namespace {

// This byte adds 255 to a gap, which goes on with the next byte. Any other byte ends the gap.
constexpr uint64_t kGoesOn = 255;

// Calls body(T()) with the unsigned integer of `width` bytes.
template <class Body>
auto with_width(uint8_t width, const Body& body) {
  switch (width) {
    case 2:
      return body(uint16_t());
    case 4:
      return body(uint32_t());
    case 8:
      return body(uint64_t());
    default:
      return body(uint8_t());
  }
}

template <class T>
T load(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::span<std::byte> bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

// Small differences of either sign become small numbers: 0, -1, 1, -2 are 0, 1, 2, 3.
template <class T>
T zigzag(T made, T old) {
  const T difference = static_cast<T>(made - old);
  const T sign = static_cast<T>(difference >> (8 * sizeof(T) - 1));
  return static_cast<T>(static_cast<T>(difference << 1) ^ static_cast<T>(T{0} - sign));
}

template <class T>
T undo_zigzag(T value, T old) {
  const T sign = static_cast<T>(T{0} - static_cast<T>(value & 1));
  return static_cast<T>(old + static_cast<T>(static_cast<T>(value >> 1) ^ sign));
}

// Appends a frame for each byte of the elements, least significant byte first.
template <class T>
void append_planes(std::span<const T> values, std::vector<std::byte>& out) {
  std::vector<std::byte> plane(values.size());
  for (size_t byte = 0; byte < sizeof(T); ++byte) {
    for (size_t i = 0; i < values.size(); ++i) {
      plane[i] = static_cast<std::byte>(static_cast<uint64_t>(values[i]) >> (8 * byte));
    }
    append_frame(plane, out);
  }
}

// Takes the frames of append_planes(); `values` are zero before.
template <class T>
bool take_planes(std::span<const std::byte>& rest, std::span<T> values) {
  std::vector<std::byte> plane(values.size());
  for (size_t byte = 0; byte < sizeof(T); ++byte) {
    const auto frame = take_frame(rest);
    if (!frame || frame->bytes != plane.size() || !decompress(*frame, plane)) return false;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<T>(values[i] |
                                 static_cast<T>(std::to_integer<uint64_t>(plane[i]) << (8 * byte)));
    }
  }
  return true;
}

template <class T>
std::vector<std::byte> data_form(std::span<const std::byte> made) {
  std::vector<T> values(made.size() / sizeof(T));
  std::memcpy(values.data(), made.data(), made.size());
  std::vector<std::byte> out;
  append_planes<T>(values, out);
  return out;
}

template <class T>
std::vector<std::byte> dense_form(std::span<const std::byte> made, std::span<const std::byte> old) {
  std::vector<T> values(made.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = zigzag(load<T>(made, i), load<T>(old, i));
  }
  std::vector<std::byte> out;
  append_planes<T>(values, out);
  return out;
}

template <class T>
std::vector<std::byte> sparse_form(std::span<const std::byte> made,
                                   std::span<const std::byte> old) {
  std::vector<std::byte> gaps;
  std::vector<T> values;
  uint64_t gap = 0;
  for (size_t i = 0; i < made.size() / sizeof(T); ++i) {
    const T value = zigzag(load<T>(made, i), load<T>(old, i));
    if (value == 0) {
      ++gap;
      continue;
    }
    gaps.insert(gaps.end(), gap / kGoesOn, static_cast<std::byte>(kGoesOn));
    gaps.push_back(static_cast<std::byte>(gap % kGoesOn));
    values.push_back(value);
    gap = 0;
  }
  std::vector<std::byte> out;
  append_frame(gaps, out);
  append_planes<T>(values, out);
  return out;
}

template <class T>
bool apply_sparse(std::span<const std::byte> stored, std::span<std::byte> out) {
  const uint64_t elements = out.size() / sizeof(T);
  const auto frame = take_frame(stored);
  if (!frame || frame->bytes > elements + elements / kGoesOn + 1) return false;
  std::vector<std::byte> gaps(frame->bytes);
  if (!decompress(*frame, gaps)) return false;
  const auto goes_on = std::ranges::count(gaps, static_cast<std::byte>(kGoesOn));
  std::vector<T> values(gaps.size() - static_cast<size_t>(goes_on));
  if (values.empty() || !take_planes<T>(stored, values) || !stored.empty()) return false;
  uint64_t position = 0;
  size_t next = 0;
  for (const std::byte gap : gaps) {
    position += std::to_integer<uint64_t>(gap);
    if (gap == static_cast<std::byte>(kGoesOn)) continue;
    if (position >= elements) return false;
    store(out, position, undo_zigzag(values[next++], load<T>(out, position)));
    ++position;
  }
  return next == values.size();
}

template <class T>
bool apply_planes(const Op& op, std::span<const std::byte> stored, std::span<const std::byte> old,
                  std::span<std::byte> out) {
  std::vector<T> values(out.size() / sizeof(T));
  if (!take_planes<T>(stored, values) || !stored.empty()) return false;
  if (op.kind == OpKind::kDense) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = undo_zigzag(values[i], load<T>(old, i));
  }
  std::memcpy(out.data(), values.data(), out.size());
  return true;
}

}  // namespace

uint64_t count_differences(std::span<const std::byte> made, std::span<const std::byte> old,
                           uint8_t width) {
  return with_width(width, [&](auto zero) {
    using T = decltype(zero);
    uint64_t count = 0;
    for (size_t i = 0; i < made.size() / sizeof(T); ++i) {
      count += load<T>(made, i) != load<T>(old, i) ? 1 : 0;
    }
    return count;
  });
}

EncodedBlock encode_block(std::span<const std::byte> made, std::span<const std::byte> old,
                          uint8_t width) {
  const uint64_t elements = made.size() / width;
  const uint64_t changed = old.empty() ? elements : count_differences(made, old, width);
  return with_width(width, [&](auto zero) {
    using T = decltype(zero);
    std::optional<EncodedBlock> best;
    const auto offer = [&](OpKind kind, std::vector<std::byte> stored) {
      if (!best || stored.size() < best->stored.size()) best = {kind, std::move(stored)};
    };
    // Forms that cannot be the shortest are left out.
    if (!old.empty() && changed <= elements / 2) offer(OpKind::kSparse, sparse_form<T>(made, old));
    if (!old.empty() && changed > elements / 8) offer(OpKind::kDense, dense_form<T>(made, old));
    if (changed > elements / 2) offer(OpKind::kData, data_form<T>(made));
    return std::move(*best);
  });
}

bool decode_block(const Op& op, std::span<const std::byte> stored, std::span<const std::byte> old,
                  std::span<std::byte> out) {
  return with_width(op.width, [&](auto zero) {
    using T = decltype(zero);
    if (op.kind != OpKind::kSparse) return apply_planes<T>(op, stored, old, out);
    std::memcpy(out.data(), old.data(), out.size());
    return apply_sparse<T>(stored, out);
  });
}

}  // namespace ferry::patch
