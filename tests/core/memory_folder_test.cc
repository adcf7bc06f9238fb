#include "core/memory_folder.h"

#include <gtest/gtest.h>

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
