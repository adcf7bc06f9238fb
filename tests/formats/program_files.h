// Helpers of the tests of program and data files.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/result.h"

namespace ferry {

inline std::vector<std::byte> read_test_file(const std::string& relative) {
  std::ifstream file(FERRY_TESTDATA "/" + relative, std::ios::binary);
  EXPECT_TRUE(file.good()) << relative;
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

template <class T>
std::string message_of(const Result<T>& result) {
  return result ? "" : result.error().message;
}

}  // namespace ferry
