// The bytes of programs. A program is the same whatever compiler built Ferry: compilers differ in
// which argument of a call they evaluate first, and code that relies on it gives other bytes
// (graph/builder.h). A change of programs on purpose changes testdata/program_bytes.txt.
#include <gtest/gtest.h>

#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "core/sha256.h"
#include "tests/cli/ferry_process.h"

namespace ferry::program_bytes_test {
namespace {

// Returns the digest of all programs of a bundle, in the order of their names.
std::string digest_of(const std::string& bundle) {
  std::string programs;
  for (const auto& [name, bytes] : files_in(bundle)) {
    if (name.ends_with(".pte")) programs += bytes;
  }
  return to_hex(sha256(std::as_bytes(std::span(programs)))).substr(0, 32);
}

// Each line is a digest, a checkpoint of testdata and options of convert.
TEST(ProgramBytes, AreThoseOfTheTable) {
  std::istringstream table(read_bytes(fixture("program_bytes.txt")));
  size_t count = 0;
  for (std::string line; std::getline(table, line); ++count) {
    std::istringstream words(line);
    std::string digest, checkpoint;
    words >> digest >> checkpoint;
    const TempDir dir;
    std::vector<std::string> args = {"convert", fixture(checkpoint), "-o", dir / "b"};
    for (std::string option; words >> option;) args.push_back(option);
    const Outcome outcome = run_ferry_once(args);
    ASSERT_EQ(outcome.code, 0) << line << "\n" << outcome.err;
    EXPECT_EQ(digest_of(dir / "b"), digest) << line;
  }
  EXPECT_GT(count, 150U);
}

}  // namespace
}  // namespace ferry::program_bytes_test
