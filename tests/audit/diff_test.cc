#include "audit/diff.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/audit/small_audit.h"

namespace ferry::audit::diff_test {
namespace {

TEST(Diff, EveryKindOfChange) {
  const Audit old = small_audit();
  Audit now = small_audit();
  now.name = "new";
  now.files = {{"a.safetensors", 140, "safetensors"}, {"b.safetensors", 60, "safetensors"}};
  now.leaves = {other_leaf(0, 0, 20, LeafKind::kHeader), tensor_leaf(0, 20, 40, "z", "bb"),
                tensor_leaf(0, 60, 80, "new", "dd"), other_leaf(1, 0, 20, LeafKind::kHeader),
                tensor_leaf(1, 20, 40, "x", "ee")};
  now.leaves[4].dtype = "bf16";
  const Diff diff = compare(old, now);
  ASSERT_EQ(diff.rows.size(), 3U);
  EXPECT_EQ(diff.rows[0].change, "new");
  EXPECT_EQ(diff.rows[0].delta(), 80);
  EXPECT_EQ(diff.rows[1].change, "changed");
  EXPECT_EQ(diff.rows[1].delta(), -40);
  EXPECT_EQ(diff.rows[1].note, "f32 -> bf16, [20] -> [10]");
  EXPECT_EQ(diff.rows[2].change, "renamed");
  EXPECT_EQ(diff.rows[2].old_name, "y");
  EXPECT_EQ(diff.equal_count, 1U);  // the headers count as one leaf
  EXPECT_EQ(diff.old_bytes, 160U);
  EXPECT_EQ(diff.new_bytes, 200U);
  EXPECT_TRUE(diff.by_content);
}

TEST(Diff, EqualSizesWithOtherDigestsDiffer) {
  Audit now = small_audit();
  now.leaves[1].sha256 = "zz";
  const Diff diff = compare(small_audit(), now);
  ASSERT_EQ(diff.rows.size(), 1U);
  EXPECT_EQ(diff.rows[0].note, "other contents");
  EXPECT_EQ(compare(small_audit(), small_audit()).rows.size(), 0U);
}

TEST(Diff, TensorsMoveBetweenFilesAndLoseTheirTies) {
  Audit now = small_audit();
  std::swap(now.leaves[1].file, now.leaves[3].file);
  now.leaves[1].tied.clear();
  now.leaves.push_back(tensor_leaf(0, 60, 80, "x_too", "aa"));
  const Diff diff = compare(small_audit(), now);
  EXPECT_EQ(diff.moved_count, 2U);
  EXPECT_EQ(diff.moved_bytes, 120U);
  ASSERT_EQ(diff.rows.size(), 3U);
  EXPECT_EQ(diff.rows[0].note, "was tied to x");
  EXPECT_EQ(diff.rows[1].change, "moved");
  EXPECT_EQ(diff.rows[1].note, "a.safetensors -> b.safetensors");
}

}  // namespace
}  // namespace ferry::audit::diff_test
