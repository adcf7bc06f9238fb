#include "patch/patch_file.h"

#include <gtest/gtest.h>

namespace ferry::table_test {
namespace {

using patch::Op;
using patch::OpKind;
using patch::Table;

Table example() {
  Table table;
  table.old_files = {{"a", 100, {}}, {"b", 7, {}}};
  table.new_files.push_back({{"a", 104, {}},
                             {{OpKind::kCopy, 0, 0, 90, 10, 0},
                              {OpKind::kSparse, 2, 0, 8, 4, 30},
                              {OpKind::kData, 1, 0, 6, 0, 9}}});
  table.new_files.push_back({{"c", 7, {}}, {{OpKind::kCopy, 0, 1, 7, 0, 0}}});
  table.new_files.push_back({{"empty", 0, {}}, {}});
  return table;
}
constexpr uint64_t kPayload = 39;

std::string refusal(const Table& table, uint64_t payload = kPayload) {
  const auto read = patch::read_table(patch::write_table(table), payload, "p");
  return read ? "" : read.error().message;
}

TEST(PatchTable, IsReadAsItWasWritten) {
  const std::vector<std::byte> bytes = patch::write_table(example());
  const auto table = patch::read_table(bytes, kPayload, "p");
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(patch::write_table(*table), bytes);
  EXPECT_EQ(table->new_bytes(), 111U);
  EXPECT_TRUE(table->has_new_file("c"));
  EXPECT_FALSE(table->has_new_file("b"));
  EXPECT_TRUE(table->new_files[1].is_copy_of(table->old_files[1]));
  EXPECT_FALSE(table->new_files[0].is_copy_of(table->old_files[0]));
}

TEST(PatchTable, EveryRuleIsNamed) {
  const auto with = [](const auto& change) {
    Table table = example();
    change(table);
    return refusal(table);
  };
  const auto op = [](Table& t, size_t i) -> Op& { return t.new_files[0].ops[i]; };
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(with([](Table& t) { t.new_files[0].file.name = "../a"; }), "plain file name");
  contains(with([](Table& t) { t.old_files[1].name = "a"; }), "ascending");
  contains(with([](Table& t) { t.new_files[0].file.bytes = 105; }), "1 bytes have no operation");
  contains(with([](Table& t) { t.new_files[0].file.bytes = uint64_t{1} << 63; }), "has 922");
  contains(with([&](Table& t) { op(t, 0).bytes = 105; }), "beyond the end");
  contains(with([&](Table& t) { op(t, 0).bytes = 0; }), "beyond the end");
  contains(with([&](Table& t) { op(t, 0).old_offset = 11; }), "outside of the old file");
  contains(with([&](Table& t) { op(t, 0).old_offset = ~uint64_t{0}; }), "outside of the old file");
  contains(with([&](Table& t) { op(t, 0).old_file = 2; }), "not listed");
  contains(with([&](Table& t) { op(t, 0).stored = 1; }), "copy with a payload");
  contains(with([&](Table& t) { op(t, 1).width = 3; }), "width");
  contains(with([&](Table& t) { op(t, 1).width = 16; }), "width");
  contains(with([&](Table& t) { op(t, 1).bytes = 7; }), "size of a block");
  contains(with([&](Table& t) { op(t, 1).stored = 0; }), "payload outside");
  contains(with([&](Table& t) { op(t, 2).stored = 10; }), "payload outside");
  contains(with([&](Table& t) { op(t, 2).stored = 8; }), "1 bytes of the payload");
  Table large = example();
  op(large, 2).stored = patch::kMaxStoredBytes;
  EXPECT_EQ(refusal(large, 30 + patch::kMaxStoredBytes), "");
  ++op(large, 2).stored;
  contains(refusal(large, 31 + patch::kMaxStoredBytes), "larger than any block");
  contains(with([&](Table& t) { op(t, 2).old_offset = 1; }), "name an old file");
  contains(with([&](Table& t) { op(t, 2).kind = static_cast<OpKind>(4); }), "unknown operation");
  contains(with([](Table& t) { t.new_files.erase(t.new_files.begin() + 1); }),
           "no operation reads");
}

TEST(PatchTable, TruncationsAndBitFlipsAreRefusedOrValid) {
  const std::vector<std::byte> bytes = patch::write_table(example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(patch::read_table(std::span(bytes).first(size), kPayload, "p")) << size;
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<std::byte> damaged = bytes;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto table = patch::read_table(damaged, kPayload, "p");
    if (table) {
      EXPECT_EQ(patch::write_table(*table), damaged);
    }
  }
}

}  // namespace
}  // namespace ferry::table_test
