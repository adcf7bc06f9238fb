// Mutates a program file and mostly keeps its size, which the header states.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (size == 0 || seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::vector<uint8_t> before(data, data + size);
  const size_t changed = LLVMFuzzerMutate(data, size, size);
  std::copy(before.begin() + static_cast<std::ptrdiff_t>(changed), before.end(), data + changed);
  return size;
}
