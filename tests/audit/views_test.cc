#include "audit/views.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/audit/small_audit.h"

namespace ferry::audit::views_test {
namespace {

TEST(Views, AreNestedAndAddUp) {
  const auto rows = view(small_audit(), {ViewKey::kFile, ViewKey::kKind}, ViewOrder::kBytes);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].key, "a.safetensors");
  ASSERT_EQ(rows[0].rows.size(), 2U);
  EXPECT_EQ(rows[0].rows[0].bytes, 80U);
  EXPECT_EQ(rows[0].rows[1].bytes, 20U);
  EXPECT_FALSE(view_keys("kind,kind"));
  EXPECT_FALSE(view_keys("kind,"));
  EXPECT_FALSE(view_keys("sort"));
}

TEST(Views, NamesWithNumbersAreInTheirOrder) {
  Audit audit{.name = "a", .type = "data"};
  audit.files = {{"f", 12, "data"}};
  for (const auto& [offset, layer] : {std::pair{0, 10}, std::pair{4, 9}, std::pair{8, 2}}) {
    audit.leaves.push_back(tensor_leaf(0, static_cast<uint64_t>(offset), 4, "t"));
    audit.leaves.back().layer = layer;
  }
  const auto rows = view(audit, {ViewKey::kLayer}, ViewOrder::kName);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].key + rows[1].key + rows[2].key, "2910");
}

}  // namespace
}  // namespace ferry::audit::views_test
