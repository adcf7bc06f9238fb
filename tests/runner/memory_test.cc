// Planned memory: how much the runner grants, and the limits of control groups.
#include "runner/memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/formats/temp_dir.h"

namespace ferry::runner::memory_test {
namespace {

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(MemoryBudget, CountsAllThatIsTaken) {
  MemoryBudget budget(1000);
  EXPECT_TRUE(budget.take(600));
  EXPECT_TRUE(budget.take(400));
  const Status over = budget.take(1);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kIo);
  EXPECT_EQ(over.error().message,
            "planned memory of 1001 bytes exceeds the 1000 bytes that memory allows");
}

TEST(MemoryBudget, DoesNotWrapAround) {
  MemoryBudget budget(UINT64_MAX - 1);
  EXPECT_TRUE(budget.take(UINT64_MAX - 1));
  EXPECT_FALSE(budget.take(UINT64_MAX - 1));
}

TEST(MemoryBudget, WithoutANumberTheSystemDecides) {
  MemoryBudget budget(std::nullopt);
  EXPECT_TRUE(budget.take(1 << 20));
  const Status over = budget.take(uint64_t{1} << 60);
  ASSERT_FALSE(over);
  EXPECT_NE(over.error().message.find("are available (memory sets the limit)"), std::string::npos);
}

TEST(ControlGroups, TheTightestOfAllParentsCountsWithoutItsCache) {
  const TempDir dir;
  write(dir / "memory.max", "max\n");
  write(dir / "a/memory.max", "1000\n");
  write(dir / "a/memory.current", "700\n");
  write(dir / "a/memory.stat", "anon 400\nfile 300\n");
  write(dir / "a/b/memory.max", "5000\n");
  write(dir / "a/b/memory.current", "100\n");
  EXPECT_EQ(control_group_bytes("0::/a/b\n", dir.path()), 600);
  EXPECT_EQ(control_group_bytes("0::/\n", dir.path()), std::nullopt);
  EXPECT_EQ(control_group_bytes("0::/absent/below\n", dir.path()), std::nullopt);
}

TEST(ControlGroups, OfVersion1AreInTheFolderOfTheirController) {
  const TempDir dir;
  write(dir / "memory/a/memory.limit_in_bytes", "4096\n");
  write(dir / "memory/a/memory.usage_in_bytes", "96\n");
  EXPECT_EQ(control_group_bytes("3:cpu,cpuacct:/a\n5:memory:/a\n", dir.path()), 4000);
  EXPECT_EQ(control_group_bytes("3:cpu,cpuacct:/a\n", dir.path()), std::nullopt);
}

TEST(ControlGroups, MoreUsedThanAllowedLeavesNothing) {
  const TempDir dir;
  write(dir / "memory.max", "100\n");
  write(dir / "memory.current", "300\n");
  EXPECT_EQ(control_group_bytes("0::/\n", dir.path()), 0);
}

}  // namespace
}  // namespace ferry::runner::memory_test
