// Files and values for the tests of .pte and .ptd files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry {

inline std::vector<std::byte> read_test_file(const std::string& relative) {
  std::ifstream file(FERRY_TESTDATA "/" + relative, std::ios::binary);
  EXPECT_TRUE(file.good()) << relative;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::byte> bytes(text.size());
  std::ranges::copy(std::as_bytes(std::span(text)), bytes.begin());
  return bytes;
}

template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "" : result.error().message;
}

namespace pte {

// An f32 tensor that is neither a constant nor planned.
inline Tensor tensor(std::vector<int32_t> sizes) {
  Tensor out;
  for (size_t i = 0; i < sizes.size(); ++i) out.dim_order.push_back(static_cast<uint8_t>(i));
  out.sizes = std::move(sizes);
  return out;
}

inline Tensor planned(std::vector<int32_t> sizes, uint64_t offset, uint32_t memory = 1) {
  Tensor out = tensor(std::move(sizes));
  out.allocation = Allocation{memory, offset};
  return out;
}

}  // namespace pte
}  // namespace ferry
