#include "patch/chunks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>

#include "core/xxh3.h"

namespace ferry::patch {
namespace {

constexpr uint64_t kLeastAverage = 4096;
constexpr uint64_t kMostChunks = uint64_t{1} << 20;

// A random number for each byte (SplitMix64). Another table would give other patches that are as
// good.
constexpr std::array<uint64_t, 256> gear_table() {
  std::array<uint64_t, 256> table{};
  uint64_t state = 0x66657272;
  for (uint64_t& entry : table) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    entry = z ^ (z >> 31);
  }
  return table;
}
constexpr std::array<uint64_t, 256> kGear = gear_table();

// Returns a mask of `bits` high bits. The high bits of the hash depend on the last 64 bytes.
constexpr uint64_t high_bits(int bits) { return ~uint64_t{0} << (64 - bits); }

auto order_of(const Chunk& chunk) {
  return std::tuple(chunk.hash, chunk.bytes, chunk.file, chunk.offset);
}

}  // namespace

Chunker::Chunker(uint64_t average)
    : shortest_(average / 4), average_(average), longest_(average * 4) {
  const int bits = std::countr_zero(average);
  strict_mask_ = high_bits(bits + 1);
  loose_mask_ = high_bits(bits - 1);
}

size_t Chunker::first_chunk(std::span<const std::byte> bytes) const {
  const size_t end = std::min<size_t>(bytes.size(), longest_);
  const size_t middle = std::min<size_t>(end, average_);
  uint64_t hash = 0;
  // The hash begins a word of 64 bytes before the first possible end.
  size_t i = std::min<size_t>(end, shortest_ - 64);
  for (; i < std::min<size_t>(end, shortest_); ++i) {
    hash = (hash << 1) + kGear[std::to_integer<size_t>(bytes[i])];
  }
  for (; i < middle; ++i) {
    hash = (hash << 1) + kGear[std::to_integer<size_t>(bytes[i])];
    if ((hash & strict_mask_) == 0) return i + 1;
  }
  for (; i < end; ++i) {
    hash = (hash << 1) + kGear[std::to_integer<size_t>(bytes[i])];
    if ((hash & loose_mask_) == 0) return i + 1;
  }
  return end;
}

uint64_t average_chunk(uint64_t total_bytes) {
  uint64_t average = kLeastAverage;
  while (total_bytes / average > kMostChunks) average *= 2;
  return average;
}

uint64_t chunk_hash(std::span<const std::byte> bytes) {
  const FastDigest digest = xxh3(bytes);
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash;
}

ChunkIndex::ChunkIndex(std::vector<Chunk> chunks) : chunks_(std::move(chunks)) {
  std::ranges::sort(chunks_, {}, order_of);
  const auto equal = [](const Chunk& a, const Chunk& b) {
    return a.hash == b.hash && a.bytes == b.bytes;
  };
  chunks_.erase(std::unique(chunks_.begin(), chunks_.end(), equal), chunks_.end());
}

const Chunk* ChunkIndex::find(uint64_t hash, uint64_t bytes) const {
  const auto key = std::tuple(hash, bytes);
  const auto found = std::ranges::lower_bound(
      chunks_, key, {}, [](const Chunk& c) { return std::tuple(c.hash, uint64_t{c.bytes}); });
  if (found == chunks_.end() || found->hash != hash || found->bytes != bytes) return nullptr;
  return &*found;
}

size_t common_prefix(std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i + 8 <= size && std::memcmp(a.data() + i, b.data() + i, 8) == 0) i += 8;
  while (i < size && a[i] == b[i]) ++i;
  return i;
}

size_t common_suffix(std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t size = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < size && a[a.size() - 1 - i] == b[b.size() - 1 - i]) ++i;
  return i;
}

}  // namespace ferry::patch
