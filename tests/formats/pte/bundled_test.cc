// Bundled programs: the reader returns what was written, and refuses everything else.

#include "formats/pte/bundled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace ferry::pte::bundled_test {
namespace {

TestTensor floats(std::vector<int32_t> sizes, const std::vector<float>& values) {
  TestTensor tensor{DType::kF32, std::move(sizes), std::vector<std::byte>(values.size() * 4)};
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

std::vector<TestSuite> suites() {
  TestCase test;
  test.inputs = {floats({2, 3}, {1, 2, 3, 4, 5, 6}), int64_t{7}, true, 0.5};
  test.expected = {floats({}, {9})};
  return {{"forward", {test, test}}, {"other", {}}};
}

// Returns a bundled program file with `program_bytes` bytes of program.
std::vector<std::byte> file_of(const std::vector<TestSuite>& suites, size_t program_bytes) {
  const auto layout = plan_bundled(suites, program_bytes);
  EXPECT_TRUE(layout.has_value());
  if (!layout) return {};
  std::vector<std::byte> file = layout->head;
  for (size_t i = 0; i < program_bytes; ++i) file.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(file.size(), layout->file_bytes);
  return file;
}

TEST(BundledTest, WhatIsWrittenIsRead) {
  for (const size_t bytes : {1U, 31U, 32U, 1000U}) {
    const std::vector<std::byte> file = file_of(suites(), bytes);
    ASSERT_TRUE(is_bundled(file));
    const auto read = read_bundled(file, "f");
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(read->program.size(), bytes);
    EXPECT_EQ((read->program.data() - file.data()) % 32, 0);
    EXPECT_EQ(read->program.back(), static_cast<std::byte>(bytes - 1));
    ASSERT_EQ(read->suites.size(), 2U);
    EXPECT_EQ(read->suites[0].method, "forward");
    const TestCase& test = read->suites[0].cases.at(1);
    EXPECT_EQ(std::get<TestTensor>(test.inputs[0]).data, floats({}, {1, 2, 3, 4, 5, 6}).data);
    EXPECT_EQ(std::get<int64_t>(test.inputs[1]), 7);
    EXPECT_TRUE(std::get<bool>(test.inputs[2]));
    EXPECT_EQ(std::get<double>(test.inputs[3]), 0.5);
    EXPECT_TRUE(std::get<TestTensor>(test.expected[0]).sizes.empty());
  }
}

// The order of the dimensions of the first input is its length and {0, 1}.
TEST(BundledTest, TensorsInAnotherOrderAreReadRowMajor) {
  std::vector<std::byte> file = file_of(suites(), 8);
  const auto bytes = [](std::initializer_list<int> list) {
    std::vector<std::byte> out;
    for (const int value : list) out.push_back(static_cast<std::byte>(value));
    return out;
  };
  const std::vector<std::byte> order = bytes({2, 0, 0, 0, 0, 1}),
                               columns = bytes({2, 0, 0, 0, 1, 0});
  for (auto at = file.begin();; std::ranges::copy(columns, at)) {
    at = std::search(at, file.end(), order.begin(), order.end());
    if (at == file.end()) break;
  }
  const auto read = read_bundled(file, "f");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  for (const TestCase& test : read->suites[0].cases) {
    EXPECT_EQ(std::get<TestTensor>(test.inputs[0]).data, floats({}, {1, 3, 5, 2, 4, 6}).data);
  }
}

TEST(BundledTest, FilesOfTwoGibibytesAreRefused) {
  const auto layout = plan_bundled(suites(), (uint64_t{1} << 31) - 100);
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().code, ErrorCode::kUnsupported);
}

TEST(BundledTest, TensorsWithOtherBytesThanTheirSizesSayAreRefused) {
  std::vector<TestSuite> wrong = suites();
  std::get<TestTensor>(wrong[0].cases[0].inputs[0]).sizes = {2, 4};
  const auto read = read_bundled(file_of(wrong, 8), "f");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
  EXPECT_NE(read.error().message.find("[2, 4] of 24 bytes"), std::string::npos)
      << read.error().message;
  std::get<TestTensor>(wrong[0].cases[0].inputs[0]).sizes = {-2, -3};
  EXPECT_FALSE(read_bundled(file_of(wrong, 8), "f").has_value());
}

// Changes the list of `count` offsets so that all of them lead to its first element.
void share_first(std::vector<std::byte>& file, uint32_t count) {
  const auto word = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, file.data() + at, 4);
    return value;
  };
  size_t list = 0;
  while (word(list) != count) list += 4;
  const auto first = static_cast<uint32_t>(list + 4 + word(list + 4));
  for (size_t at = list + 4; at <= list + 4 * count; at += 4) {
    const uint32_t offset = first - static_cast<uint32_t>(at);
    std::memcpy(file.data() + at, &offset, 4);
  }
}

// All 41 offsets of a list lead to the tensor that is its first value.
TEST(BundledTest, OneTensorUnderManyOffsetsIsRefused) {
  std::vector<TestSuite> many = suites();
  std::vector<TestValue>& values = many[0].cases[0].inputs;
  values = {floats({256}, std::vector<float>(256))};
  values.resize(41, int64_t{7});
  std::vector<std::byte> file = file_of(many, 8);
  ASSERT_TRUE(read_bundled(file, "f").has_value());
  share_first(file, 41);
  const auto read = read_bundled(file, "f");
  ASSERT_FALSE(read.has_value());
  EXPECT_NE(read.error().message.find("more bytes than the file"), std::string::npos)
      << read.error().message;
}

// All 50 offsets of a list lead to a suite whose method has a long name.
TEST(BundledTest, OneSuiteUnderManyOffsetsIsRefused) {
  std::vector<TestSuite> many = {{std::string(200, 'm'), {}}};
  many.resize(50, {"n", {}});
  std::vector<std::byte> file = file_of(many, 8);
  ASSERT_TRUE(read_bundled(file, "f").has_value());
  share_first(file, 50);
  const auto read = read_bundled(file, "f");
  ASSERT_FALSE(read.has_value());
  EXPECT_NE(read.error().message.find("more bytes than the file"), std::string::npos)
      << read.error().message;
}

// Whatever bit is flipped, the reader returns, and everything that it returns lies in the file.
TEST(BundledTest, AnyFlippedBitIsReadOrRefused) {
  const std::vector<std::byte> file = file_of(suites(), 8);
  size_t refused = 0;
  for (size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::vector<std::byte> damaged = file;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    const auto read = read_bundled(damaged, "f");
    if (!read) {
      ++refused;
      continue;
    }
    EXPECT_GE(read->program.data(), damaged.data());
    EXPECT_LE(read->program.data() + read->program.size(), damaged.data() + damaged.size());
  }
  EXPECT_GT(refused, file.size());
}

TEST(BundledTest, ShortFilesAreRefused) {
  const std::vector<std::byte> file = file_of(suites(), 8);
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> part(file.begin(),
                                      file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(read_bundled(part, "f").has_value()) << size;
  }
}

// The wrapped program is read by the reader of programs.
TEST(BundledTest, TheProgramInsideIsCheckedToo) {
  const auto read = read_any_program(file_of(suites(), 64), "f.bpte");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace ferry::pte::bundled_test
