// Tensors of random values in memory, for tests of recipes.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/tensor_source.h"

namespace ferry::graph {

// Holds tensors in memory, and refuses reads outside of them.
class MemorySource : public TensorSource {
 public:
  size_t add(DType dtype, Shape shape, std::vector<std::byte> bytes,
             const BlockEncoding* encoding = nullptr) {
    entries_.push_back({.name = "tensor" + std::to_string(entries_.size()),
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .bytes = bytes.size(),
                        .encoding = encoding});
    data_.push_back(std::move(bytes));
    return entries_.size() - 1;
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const std::vector<std::byte>& data = data_.at(index);
    if (offset > data.size() || out.size() > data.size() - offset) {
      return fail(ErrorCode::kIo, "outside");
    }
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  const std::vector<std::byte>& data(size_t index) const { return data_.at(index); }

 private:
  std::string path_ = "memory";
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> data_;
};

// The generator is splitmix64.
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }
};

inline constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

inline void append(std::vector<std::byte>& bytes, DType dtype, float value) {
  std::byte raw[4];
  size_t size = 2;
  if (dtype == DType::kF32) {
    size = 4;
    std::memcpy(raw, &value, 4);
  } else {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(raw, &bits, 2);
  }
  bytes.insert(bytes.end(), raw, raw + size);
}

inline float element(const std::vector<std::byte>& bytes, DType dtype, size_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, &bytes[index * 4], 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, &bytes[index * 2], 2);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// A block has four values in three bytes: m + a, m - a, m + b, m - b.
inline void decode_toy(const std::byte* block, float* out) {
  const auto at = [&](int i) { return static_cast<float>(std::to_integer<int>(block[i])); };
  for (int i = 0; i < 4; ++i) out[i] = at(0) + (i % 2 == 0 ? at(1 + i / 2) : -at(1 + i / 2));
}
inline constexpr BlockEncoding kToy = {"toy", 4, 3, decode_toy};

// Returns element `index` of an entry, as f32.
inline float element_of(const MemorySource& source, size_t entry, size_t index) {
  const TensorEntry& tensor = source.entries()[entry];
  if (tensor.encoding == nullptr) return element(source.data(entry), tensor.dtype, index);
  float values[4];
  decode_toy(&source.data(entry)[index / 4 * 3], values);
  return values[index % 4];
}

inline size_t add_random(MemorySource& source, Random& random, DType dtype, const Shape& shape) {
  std::vector<std::byte> bytes;
  size_t count = 1;
  for (int64_t dim : shape) count *= static_cast<size_t>(dim);
  for (size_t i = 0; i < count; ++i) {
    append(bytes, dtype, static_cast<float>(static_cast<int64_t>(random.below(4001)) - 2000) / 512);
  }
  return source.add(dtype, shape, std::move(bytes));
}

inline size_t add_toy(MemorySource& source, Random& random, const Shape& shape) {
  size_t count = 1;
  for (int64_t dim : shape) count *= static_cast<size_t>(dim);
  std::vector<std::byte> bytes(count / 4 * 3);
  for (std::byte& byte : bytes) byte = std::byte(random.below(100));
  return source.add(DType::kF32, shape, std::move(bytes), &kToy);
}

}  // namespace ferry::graph
