// Doge drops keys of a context that is longer than keep_window_size: a shorter context has all
// keys.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/ferry_process.h"

namespace ferry::dynamic_mask_test {
namespace {

TEST(DynamicMask, AContextHasAtMostTheKeysThatAreKept) {
  const TempDir dir;
  const std::string checkpoint = changed_config(dir, "golden/doge", {{"keep_window_size", 16}});
  const Outcome longer =
      run_ferry({"convert", checkpoint, "-o", dir / "b", "--context-length", "17"});
  EXPECT_EQ(longer.code, 4);
  EXPECT_NE(longer.err.find("'keep_window_size' is 16, less than the context of 17"),
            std::string::npos)
      << longer.err;
  const Outcome kept =
      run_ferry({"convert", checkpoint, "-o", dir / "b", "--context-length", "16"});
  EXPECT_EQ(kept.code, 0) << kept.err;
}

}  // namespace
}  // namespace ferry::dynamic_mask_test
