// GGUF files of the newer families, compared with logits that transformers computed from the
// checkpoints of which llama.cpp's converter made the files.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::gguf_families_test {
namespace {

constexpr double kTolerance = 5e-5;

class GgufFamily : public testing::TestWithParam<std::string> {};

TEST_P(GgufFamily, IsAtParity) {
  const std::string file = fixture("gguf/families/" + GetParam());
  const TempDir dir;
  const Outcome converted =
      run_ferry({"convert", file + ".gguf", "-o", dir / "b", "--dtype", "f32"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", file + ".golden.safetensors", "--json"});
  ASSERT_EQ(verified.code, 0) << verified.err;
  EXPECT_LT(verified.json()["metrics"]["max_abs"], kTolerance);
}

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("gguf/families"))) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().stem().string());
  }
  std::ranges::sort(found);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Files, GgufFamily, testing::ValuesIn(names()),
                         [](const auto& file) { return file.param; });

}  // namespace
}  // namespace ferry::gguf_families_test
