#include "packer/weight_job.h"

#include "tests/packer/tiny_bundle.h"

namespace ferry::packer::weight_job_test {
namespace {

std::string digest_after(const MemorySource& source,
                         const std::vector<std::pair<int, int>>& reads) {
  HashQueue queue;
  SourceTap tap(source, queue);
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
  SourceTapTest() {
    source.add("w", DType::kU8, {100});
    large.add("w", DType::kU8, {700000});
  }
  MemorySource source, large;
};

TEST_F(SourceTapTest, ReadsInOrderNeedNoSecondPass) {
  EXPECT_EQ(digest_after(source, {{0, 40}, {40, 60}}), hex_digest(source.bytes_of(0)));
  EXPECT_EQ(source.reads_of(0), 1u);
  EXPECT_EQ(digest_after(large, {{0, 400000}, {400000, 300000}}), hex_digest(large.bytes_of(0)));
  EXPECT_EQ(large.reads_of(0), 3u);
}

TEST_F(SourceTapTest, ReadsGiveWhatTheSourceHas) {
  HashQueue queue;
  SourceTap tap(large, queue);
  tap.watch(0);
  for (const auto& [offset, size] : std::vector<std::pair<size_t, size_t>>{
           {0, 1000}, {1000, 280000}, {10, 690000}, {699999, 1}, {262143, 2}, {0, 700000}}) {
    std::vector<std::byte> out(size);
    ASSERT_TRUE(tap.read(0, offset, out));
    const auto stored = std::as_bytes(std::span(large.bytes_of(0)));
    EXPECT_TRUE(std::ranges::equal(out, stored.subspan(offset, size)));
  }
}

TEST_F(SourceTapTest, DigestDoesNotDependOnTheReads) {
  const std::string digest = hex_digest(source.bytes_of(0));
  EXPECT_EQ(digest_after(source, {}), digest);
  EXPECT_EQ(digest_after(source, {{50, 50}, {0, 50}}), digest);
  EXPECT_EQ(digest_after(source, {{0, 50}, {0, 50}, {50, 50}}), digest);
  EXPECT_EQ(digest_after(source, {{0, 10}, {90, 10}}), digest);
  const std::string of_large = hex_digest(large.bytes_of(0));
  EXPECT_EQ(digest_after(large, {}), of_large);
  EXPECT_EQ(digest_after(large, {{0, 280000}, {0, 690000}, {690000, 10}}), of_large);
  EXPECT_EQ(digest_after(large, {{262144, 100}, {0, 262144}, {262144, 437856}}), of_large);
}

TEST_F(SourceTapTest, FailureOfTheSourceIsPassedOn) {
  source.fail_at(0);
  EXPECT_EQ(digest_after(source, {}), "checkpoint: the disk is on fire");
}

}  // namespace
}  // namespace ferry::packer::weight_job_test
