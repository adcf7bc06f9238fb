// Chunked attention (Llama 4) where a context has one chunk and where it has several.
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/ferry_process.h"

namespace ferry::chunked_attention_test {
namespace {

const std::string kCheckpoint = fixture("golden/llama4_text");  // chunks of 8 tokens

TEST(ChunkedAttention, StaticProgramsHaveOneChunk) {
  const TempDir dir;
  const Outcome several = run_ferry(
      {"convert", kCheckpoint, "-o", dir / "b", "--program", "static", "--context-length", "9"});
  EXPECT_EQ(several.code, 4);
  EXPECT_NE(several.err.find("'attention_chunk_size' is 8"), std::string::npos) << several.err;

  const Outcome one = run_ferry(
      {"convert", kCheckpoint, "-o", dir / "b", "--program", "static", "--context-length", "8"});
  ASSERT_EQ(one.code, 0) << one.err;
  const Outcome proved = run_ferry({"verify", dir / "b", "--checkpoint", kCheckpoint});
  EXPECT_EQ(proved.code, 0) << proved.err << proved.out;
}

// Calls begin and end inside of chunks, so the first key of a call is not that of its chunk.
TEST(ChunkedAttention, HoldsForCallsOfAnyLength) {
  for (const char* length : {"1", "3", "16"}) {
    SCOPED_TRACE(length);
    const TempDir dir;
    ASSERT_EQ(run_ferry({"convert", kCheckpoint, "-o", dir / "b", "--dtype", "f32",
                         "--prefill-length", length})
                  .code,
              0);
    const Outcome proved =
        run_ferry({"verify", dir / "b", "--reference", kCheckpoint + "/golden.safetensors"});
    EXPECT_EQ(proved.code, 0) << proved.err << proved.out;
  }
}

}  // namespace
}  // namespace ferry::chunked_attention_test
