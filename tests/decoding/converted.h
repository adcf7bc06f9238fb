// Bundles of the sample checkpoints for tests that decode in this process.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "tests/cli/ferry_process.h"

namespace ferry::decoding_test {

// Converts a checkpoint with options of `ferry convert`.
inline packer::Bundle convert_path(const TempDir& dir, const std::string& path,
                                   const std::vector<std::string>& options, ThreadPool& pool) {
  std::vector<std::string> args = {"convert", path, "-o", dir / "bundle"};
  args.insert(args.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry_once(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return packer::Bundle::open(dir / "bundle", /*check_digests=*/false, pool).value();
}

inline packer::Bundle convert(const TempDir& dir, const std::string& checkpoint,
                              const std::vector<std::string>& options, ThreadPool& pool) {
  return convert_path(dir, fixture("golden/" + checkpoint), options, pool);
}

}  // namespace ferry::decoding_test
