#include "core/progress.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::progress_text_test {
namespace {

TEST(ProgressText, SaysHowMuchHowFastAndHowLong) {
  EXPECT_EQ(progress_text("writing", {600000000, 1200000000, 2.0, ProgressUnit::kBytes}, 100),
            "writing [##########          ]  50 %  600.00 MB of 1.20 GB  300.00 MB/s  2 s left");
  EXPECT_EQ(progress_text("predicting", {10, 40, 5.0, ProgressUnit::kItems}, 100),
            "predicting [#####               ]  25 %  10 of 40  2/s  15 s left");
}

TEST(ProgressText, LongTimesAreInMinutesAndHours) {
  const auto left = [](uint64_t total) {
    const std::string text = progress_text("x", {1, total, 1.0, ProgressUnit::kItems}, 200);
    return text.substr(text.rfind("  ") + 2);
  };
  EXPECT_EQ(left(60), "59 s left");
  EXPECT_EQ(left(126), "2:05 min left");
  EXPECT_EQ(left(3721), "1:02 h left");
}

TEST(ProgressText, FitsAnyTerminalAndAnyNumbers) {
  const Progress cases[] = {{0, 0, 0, ProgressUnit::kBytes},
                            {0, 100, 0, ProgressUnit::kBytes},
                            {5, 0, 1, ProgressUnit::kItems},
                            {200, 100, 1e-9, ProgressUnit::kItems},
                            {1, UINT64_MAX, 1e9, ProgressUnit::kBytes}};
  for (const Progress& progress : cases) {
    for (const size_t columns : {size_t{10}, size_t{40}, size_t{79}}) {
      EXPECT_LE(progress_text("comparing", progress, columns).size(), columns);
    }
  }
  EXPECT_NE(progress_text("x", cases[3], 100).find("100 %"), std::string::npos);
}

TEST(SharedProgress, AddsUpWhatThreadsHaveDone) {
  uint64_t last = 0, calls = 0;
  SharedProgress progress(
      [&](uint64_t done, uint64_t total) {
        EXPECT_EQ(total, 100U);
        EXPECT_GT(done, last);
        last = done;
        ++calls;
      },
      100);
  ThreadPool pool(4);
  pool.parallel_for(100, [&](size_t) { progress.advance(1); });
  EXPECT_EQ(last, 100U);
  EXPECT_EQ(calls, 100U);
  SharedProgress({}, 1).advance(1);  // without a callback nothing happens
}

}  // namespace
}  // namespace ferry::progress_text_test
