#include "packer/source_tap.h"

#include "tests/packer/tiny_bundle.h"

namespace ferry::packer {
namespace {

std::string digest_after(const MemorySource& source,
                         const std::vector<std::pair<int, int>>& reads) {
  SourceTap tap(source);
  tap.watch(0);
  for (const auto& [offset, size] : reads) {
    std::vector<std::byte> out(static_cast<size_t>(size));
    EXPECT_TRUE(tap.read(0, static_cast<uint64_t>(offset), out));
  }
  const auto digest = tap.finish(0);
  return digest ? to_hex(*digest) : digest.error().message;
}

class SourceTapTest : public testing::Test {
 protected:
  SourceTapTest() { source.add("w", DType::kU8, {100}); }
  MemorySource source;
};

TEST_F(SourceTapTest, ReadsInOrderNeedNoSecondPass) {
  EXPECT_EQ(digest_after(source, {{0, 40}, {40, 60}}), hex_digest(source.bytes_of(0)));
  EXPECT_EQ(source.reads_of(0), 2u);
}

TEST_F(SourceTapTest, DigestDoesNotDependOnTheReads) {
  const std::string digest = hex_digest(source.bytes_of(0));
  EXPECT_EQ(digest_after(source, {}), digest);
  EXPECT_EQ(digest_after(source, {{50, 50}, {0, 50}}), digest);
  EXPECT_EQ(digest_after(source, {{0, 50}, {0, 50}, {50, 50}}), digest);
  EXPECT_EQ(digest_after(source, {{0, 10}, {90, 10}}), digest);
}

TEST_F(SourceTapTest, FailureOfTheSourceIsPassedOn) {
  source.fail_at(0);
  EXPECT_EQ(digest_after(source, {}), "checkpoint: the disk is on fire");
}

}  // namespace
}  // namespace ferry::packer
