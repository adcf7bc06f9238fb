#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ferry::thread_pool_test {
namespace {

TEST(ThreadPool, RunsEveryItemExactlyOnce) {
  for (size_t threads : {1u, 2u, 3u, 16u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (size_t count : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> runs(count);
      pool.parallel_for(count, [&](size_t i) { runs[i].fetch_add(1); });
      for (const auto& n : runs) ASSERT_EQ(n.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortJobsInARow) {
  ThreadPool pool(4);
  std::vector<uint64_t> sums(8, 0);  // no atomics: each item has its own element
  for (uint64_t job = 0; job < 20000; ++job) {
    pool.parallel_for(sums.size(), [&](size_t i) { sums[i] += job; });
  }
  for (uint64_t sum : sums) EXPECT_EQ(sum, 20000u * 19999u / 2);
}

TEST(ThreadPool, WakesThreadsThatWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> sum{0};
    pool.parallel_for(100, [&](size_t i) { sum.fetch_add(static_cast<int>(i)); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadPool, OtherThreadsTakePart) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  // Each item waits for the other, so one thread alone would never finish.
  pool.parallel_for(2, [&](size_t) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(ThreadPool, OneThreadRunsInlineInOrder) {
  ThreadPool pool(1);
  std::vector<size_t> order;
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(5, [&](size_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, EndsWithoutEverHavingWorked) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  EXPECT_GE(ThreadPool::hardware_threads(), 1u);
}

TEST(ThreadPool, AnExceptionComesOutOnceNothingRuns) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> inside{0};
    std::vector<int> local(64, 0);  // is destroyed when parallel_for has thrown
    EXPECT_THROW(pool.parallel_for(64,
                                   [&](size_t i) {
                                     inside.fetch_add(1);
                                     local[i] = 1;
                                     std::this_thread::sleep_for(std::chrono::microseconds(20));
                                     inside.fetch_sub(1);
                                     if (i % 16 == 3) throw std::bad_alloc();
                                   }),
                 std::bad_alloc);
    EXPECT_EQ(inside.load(), 0);
  }
  std::atomic<int> sum{0};
  pool.parallel_for(100, [&](size_t i) { sum.fetch_add(static_cast<int>(i)); });
  EXPECT_EQ(sum.load(), 4950) << "the pool works on";
}

TEST(ThreadPool, AnExceptionOfEveryItemComesOutOnce) {
  ThreadPool pool(4);
  EXPECT_THROW(pool.parallel_for(1000, [](size_t) { throw std::runtime_error("x"); }),
               std::runtime_error);
  EXPECT_NO_THROW(pool.parallel_for(1000, [](size_t) {}));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Runs in a child process, whose address space can be limited.
TEST(ThreadPool, RefusedThreadsAreDoneWithout) {
  const auto work = [] {
    const rlimit limit{rlim_t{512} << 20, rlim_t{512} << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    ThreadPool pool(1024);  // with stacks of 8 MiB
    std::atomic<int> sum{0};
    pool.parallel_for(100, [&](size_t i) { sum.fetch_add(static_cast<int>(i)); });
    ::_exit(pool.size() > 1 && pool.size() < 1024 && sum.load() == 4950 ? 0 : 1);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace ferry::thread_pool_test
