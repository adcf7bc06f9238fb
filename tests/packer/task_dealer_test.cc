#include "packer/task_dealer.h"

#include <gtest/gtest.h>

#include <vector>

namespace ferry::packer::task_dealer_test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Returns the tasks that a thread gets before it finishes one.
std::vector<size_t> first_hand(TaskDealer& dealer) {
  std::vector<size_t> open;
  while (const auto task = dealer.take(open)) open.push_back(*task);
  return open;
}

TEST(TaskDealer, GivesAsManyAsAreHashedTogether) {
  TaskDealer dealer(std::vector<HashedTask>(100, {.bytes = kMiB}), 2);
  EXPECT_EQ(first_hand(dealer).size(), sha256_width());
  TaskDealer wide(std::vector<HashedTask>(100, {.bytes = kMiB, .streams = 2}), 2);
  EXPECT_EQ(first_hand(wide).size(), std::max<size_t>(1, sha256_width() / 2));
}

TEST(TaskDealer, GivesEachOfManyThreadsLess) {
  TaskDealer dealer(std::vector<HashedTask>(1000, {.bytes = kMiB}), 64);
  EXPECT_EQ(first_hand(dealer).size(), std::min<size_t>(4, sha256_width()));
  TaskDealer more(std::vector<HashedTask>(1000, {.bytes = kMiB}), 1000);
  EXPECT_EQ(first_hand(more).size(), std::min<size_t>(2, sha256_width()));
}

TEST(TaskDealer, GivesEachTaskOnceAndInOrder) {
  TaskDealer dealer(std::vector<HashedTask>(50, {.bytes = 10 * kMiB}), 2);
  std::vector<size_t> all;
  for (size_t next = 0; next < 50;) {
    const std::vector<size_t> hand = first_hand(dealer);
    ASSERT_FALSE(hand.empty());
    for (const size_t task : hand) EXPECT_EQ(task, next++);
  }
  EXPECT_TRUE(first_hand(dealer).empty());
}

// The tasks are an embedding that is a quarter of a model, and layers.
TEST(TaskDealer, KeepsALongTaskApart) {
  std::vector<HashedTask> tasks(201, {.bytes = 5 * kMiB});
  tasks[0].bytes = 300 * kMiB;
  TaskDealer dealer(tasks, 2);
  if (sha256_width() <= 2) GTEST_SKIP() << "this processor hashes at most two streams together";
  EXPECT_EQ(first_hand(dealer), std::vector<size_t>{0});
  EXPECT_EQ(first_hand(dealer).size(), sha256_width());
}

TEST(TaskDealer, LetsALongTaskHaveAnotherOneWherePairsAreTheMost) {
  std::vector<HashedTask> tasks(201, {.bytes = 5 * kMiB});
  tasks[0].bytes = 300 * kMiB;
  TaskDealer dealer(tasks, 200);  // many threads
  if (sha256_width() == 1) GTEST_SKIP() << "this processor hashes one stream at a time";
  EXPECT_EQ(first_hand(dealer), (std::vector<size_t>{0, 1}));
}

TEST(TaskDealer, PutsTwoLongTasksTogether) {
  std::vector<HashedTask> tasks(202, {.bytes = 5 * kMiB});
  tasks[0].bytes = tasks[1].bytes = 300 * kMiB;
  TaskDealer dealer(tasks, 2);
  EXPECT_EQ(first_hand(dealer).size(), std::min<size_t>(2, sha256_width()));
}

TEST(TaskDealer, GivesAThreadWithNothingWhateverIsLeft) {
  TaskDealer dealer({{.bytes = 500 * kMiB, .streams = 100}}, 2);
  EXPECT_EQ(first_hand(dealer), std::vector<size_t>{0});
}

}  // namespace
}  // namespace ferry::packer::task_dealer_test
