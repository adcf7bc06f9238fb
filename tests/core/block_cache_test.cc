#include "core/block_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace ferry::block_cache_test {
namespace {

BlockCache::Bytes bytes_of(size_t value) { return {static_cast<std::byte>(value)}; }

TEST(BlockCache, TheLastUsedBlocksAreKept) {
  BlockCache cache;
  size_t computed = 0;
  const auto get = [&](uint64_t number) {
    return (*cache.get(0, number,
                       [&]() -> Result<BlockCache::Bytes> {
                         ++computed;
                         return bytes_of(number);
                       }))
        ->front();
  };
  for (uint64_t i = 0; i < BlockCache::kLeastBlocks; ++i) get(i);
  EXPECT_EQ(get(0), std::byte{0});
  EXPECT_EQ(computed, BlockCache::kLeastBlocks);
  get(100);  // evicts block 1, the oldest
  EXPECT_EQ(get(0), std::byte{0});
  EXPECT_EQ(computed, BlockCache::kLeastBlocks + 1);
  EXPECT_EQ(get(1), std::byte{1});
  EXPECT_EQ(computed, BlockCache::kLeastBlocks + 2);
}

TEST(BlockCache, ThreadsThatWantTheSameBlockWaitForIt) {
  BlockCache cache;
  std::atomic<size_t> computed{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      const auto block = cache.get(3, 7, [&]() -> Result<BlockCache::Bytes> {
        ++computed;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return bytes_of(9);
      });
      right += (*block)->front() == std::byte{9};
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(computed, 1u);
  EXPECT_EQ(right, 8u);
}

TEST(BlockCache, WhatFailedIsComputedAgain) {
  BlockCache cache;
  const auto failed =
      cache.get(0, 0, []() -> Result<BlockCache::Bytes> { return bad_input("no"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "no");
  EXPECT_THROW((void)cache.get(0, 0, []() -> Result<BlockCache::Bytes> { throw std::bad_alloc(); }),
               std::bad_alloc);
  EXPECT_EQ((*cache.get(0, 0, []() -> Result<BlockCache::Bytes> { return bytes_of(4); }))->front(),
            std::byte{4});
}

}  // namespace
}  // namespace ferry::block_cache_test
