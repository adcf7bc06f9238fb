// Judging a task by the exit code and the messages of a step.
#include "batch/judge.h"

#include <gtest/gtest.h>

#include <string>

#include "core/result.h"
#include "tests/batch/batch_testing.h"

namespace ferry::batch::judge_test {
namespace {

Judgement judged(const std::string& step, int exit, const std::string& words) {
  const TempDir dir;
  const StepFiles files{.name = step, .out_path = dir / "out.json", .log_path = dir / "log"};
  write_bytes(files.log_path, "$ ferry " + step + "\nferry: error: " + words + "\n");
  return judge(files, {.exit = exit}, /*out_of_memory=*/false);
}

// The message tells lack of memory from a file that cannot be read, so it must be read before it is
// moved away.
TEST(Judge, WantOfMemoryIsNotAFailedFile) {
  const int exit = static_cast<int>(ErrorCode::kIo);
  const Judgement memory = judged("convert", exit, "model.safetensors: not enough memory");
  EXPECT_EQ(memory.reason, Class::kMemory);
  EXPECT_EQ(memory.message, "model.safetensors: not enough memory");
  EXPECT_EQ(judged("convert", exit, "out: No space left on device").reason, Class::kIo);
}

// A target that another process is writing may be free later. A target that exists stays.
TEST(Judge, AnotherWriterPasses) {
  const int exit = static_cast<int>(ErrorCode::kExists);
  const Judgement busy = judged("convert", exit, "out: another process is writing it (in '.x')");
  EXPECT_EQ(busy.reason, Class::kLease);
  EXPECT_TRUE(busy.transient);
  EXPECT_FALSE(judged("convert", exit, "out: exists already").transient);
}

TEST(Judge, TheStepSaysWhatOneMeans) {
  EXPECT_EQ(judged("check", 1, "digest mismatch").reason, Class::kDamage);
  EXPECT_EQ(judged("verify", 1, "no parity").reason, Class::kParity);
}

}  // namespace
}  // namespace ferry::batch::judge_test
