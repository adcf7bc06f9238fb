// The layout that .pte and .ptd files share: a FlatBuffer with a header inserted after its first 8
// bytes, then segments of data. Private to formats/.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/result.h"

namespace ferry::wire {

static_assert(std::endian::native == std::endian::little, "fields are read as they are stored");

inline constexpr size_t kPreambleBytes = 8;  // u32 root offset, 4 bytes of identifier
inline constexpr uint64_t kSegmentAlignment = 128;
inline constexpr uint64_t kConstantAlignment = 16;
// FlatBuffers limits a buffer to this size, because offsets are signed 32-bit numbers.
inline constexpr uint64_t kMaxFlatBufferBytes = (uint64_t{1} << 31) - 1;

struct Range {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The caller has checked that sizeof(T) bytes are there.
template <class T>
T load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void store(std::span<std::byte> bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

// Holds the bytes of a FlatBuffer at an address that is aligned for its 8-byte fields. That is the
// original address if it is aligned, as in every mapped file, else a copy. The original must
// outlive this object.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::span<const std::byte> bytes);
  std::span<const std::byte> get() const { return bytes_; }

 private:
  std::vector<std::max_align_t> copy_;
  std::span<const std::byte> bytes_;
};

// Runs the FlatBuffers verifier, which proves that all offsets stay inside of `bytes` and nothing
// about their meaning. At most one table per 4 bytes is allowed: shared tables are legal, so the
// file's size alone would not bound the time.
template <class Root>
Result<const Root*> verified_root(std::span<const std::byte> bytes, const char* identifier,
                                  const std::string& name) {
  if (bytes.size() >= kMaxFlatBufferBytes) return bad_input(name + ": FlatBuffer of 2 GiB or more");
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  flatbuffers::Verifier::Options options;
  options.max_depth = 64;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes.size() / 4);
  flatbuffers::Verifier verifier(data, bytes.size(), options);
  if (bytes.size() < kPreambleBytes + 4 || !verifier.VerifyBuffer<Root>(identifier)) {
    return bad_input(name + ": damaged FlatBuffer (an offset leads outside of it)");
  }
  return flatbuffers::GetRoot<Root>(data);
}

// Returns the elements of a verified vector; empty for an absent one. The verifier does not check
// that elements of 8 bytes are aligned, so they are copied as bytes.
template <class To, class From>
std::vector<To> copy_vector(const flatbuffers::Vector<From>* vector) {
  if (vector == nullptr) return {};
  std::vector<From> raw(vector->size());
  if (!raw.empty()) std::memcpy(raw.data(), vector->Data(), raw.size() * sizeof(From));
  if constexpr (std::is_same_v<To, From>) {
    return raw;
  } else {
    return std::vector<To>(raw.begin(), raw.end());
  }
}

// Checks that segments lie inside of [0, data_bytes) and do not overlap. Returns the first segment
// that breaks this, if there is one.
struct SegmentProblem {
  size_t segment;
  std::string what;
};
std::optional<SegmentProblem> find_segment_problem(const std::vector<Range>& segments,
                                                   uint64_t data_bytes);

// Returns `flat` with `header_bytes` zeros inserted after its preamble.
std::vector<std::byte> insert_header(std::span<const uint8_t> flat, size_t header_bytes);

}  // namespace ferry::wire
