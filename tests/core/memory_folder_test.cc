#include "core/memory_folder.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>

namespace ferry::memory_folder_test {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(MemoryFolder, WhatIsWrittenIsRead) {
  MemoryFolder folder;
  {
    const auto file = folder.create("a", 10);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(file->write_at(4, bytes_of("text")));
  }
  ASSERT_TRUE(folder.create("b", 0));
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b"}));
  const MemoryFolder moved = std::move(folder);
  const auto again = moved.open_to_write("a");
  ASSERT_TRUE(again && again->write_at(0, bytes_of("new")));
  const auto read = moved.open("a");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read_text(*read, 100).value(), std::string("new\0text\0\0", 10));
  EXPECT_TRUE(read->check_unchanged());
  const auto mapped = MappedFile::map(*read);
  ASSERT_TRUE(mapped && mapped->bytes().size() == 10);
  EXPECT_EQ(mapped->bytes()[4], std::byte{'t'});
}

// Pages of 2 MiB begin only at multiples of it, and the system may leave a small file elsewhere.
TEST(MemoryFolder, ALargeFileBeginsWithAHugePage) {
  constexpr uint64_t kHugePage = uint64_t{1} << 21, kSize = 2 * kHugePage + 5;
  MemoryFolder folder;
  const auto file = folder.create("a", kSize);
  ASSERT_TRUE(file && file->write_at(kSize - 4, bytes_of("last")));
  const auto read = folder.open("a");
  ASSERT_TRUE(read) << read.error().message;
  const auto mapped = MappedFile::map(*read);
  ASSERT_TRUE(mapped && mapped->bytes().size() == kSize);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped->bytes().data()) % kHugePage, 0u);
  EXPECT_EQ(mapped->bytes()[kSize - 5], std::byte{0});
  EXPECT_EQ(mapped->bytes().back(), std::byte{'t'});
}

TEST(MemoryFolder, AFileOutlivesItsFolder) {
  MappedFile mapped;
  {
    MemoryFolder folder;
    ASSERT_TRUE(folder.create("a", 4)->write_at(0, bytes_of("text")));
    mapped = *MappedFile::map(*folder.open("a"));
  }
  EXPECT_EQ(mapped.bytes()[3], std::byte{'t'});
}

TEST(MemoryFolder, PlacesBehindTheEndAreRefused) {
  MemoryFolder folder;
  const OutputFile file = *folder.create("a", 4);
  const auto written = file.write_at(2, bytes_of("text"));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "a (in memory): cannot write at offset 2: File too large");
  EXPECT_FALSE(file.write_at(UINT64_MAX, bytes_of("text")));
  EXPECT_FALSE(file.extend(5));
  std::array<std::byte, 3> out{};
  EXPECT_FALSE(file.read_at(2, out));
  EXPECT_FALSE(folder.open("a")->read_at(UINT64_MAX, out));
  EXPECT_FALSE(folder.open("a")->descriptor());
  EXPECT_FALSE(folder.create("b", UINT64_MAX / 2 + 1));
}

TEST(MemoryFolder, NamesAreTakenOnceAndMustBeThere) {
  MemoryFolder folder;
  ASSERT_TRUE(folder.create("a", 1));
  const auto twice = folder.create("a", 1);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kExists);
  const auto missing = folder.open("b");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  EXPECT_EQ(missing.error().message, "b (in memory): cannot open: No such file or directory");
}

}  // namespace
}  // namespace ferry::memory_folder_test
