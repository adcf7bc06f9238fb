// Mutates the JSON of a safetensors file and corrects its length. Sometimes it mutates the whole
// file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  constexpr size_t kPrefix = 8;
  if (size < kPrefix || max_size < 64 || seed % 8 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  uint64_t length = 0;
  std::memcpy(&length, data, kPrefix);
  length = std::min<uint64_t>(length, size - kPrefix);
  const std::string rest(reinterpret_cast<const char*>(data) + kPrefix + length,
                         size - kPrefix - length);
  const size_t room = max_size - kPrefix - std::min(rest.size(), max_size - kPrefix);
  length = LLVMFuzzerMutate(data + kPrefix, length, std::max<size_t>(room, length));
  std::memcpy(data, &length, kPrefix);
  const size_t kept = std::min(rest.size(), max_size - kPrefix - length);
  std::memcpy(data + kPrefix + length, rest.data(), kept);
  return kPrefix + length + kept;
}
