// prove_bundled() checks that a bundled program gives the outputs that its own test cases expect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "formats/pte/bundled.h"
#include "runner/method.h"

namespace ferry::proof {

struct BundledCase {
  std::string method;
  size_t index = 0;    // index of the case in its method
  double max_abs = 0;  // largest difference of a value; infinite if kinds or shapes differ
  bool within = false;
};

struct BundledProof {
  // A value may differ by `tolerance` plus `tolerance` times the expected value. By default, with
  // f16 or bf16 weights, the root mean square of the errors of an output may be `tolerance` times
  // that of the expected output.
  double tolerance = 0;
  std::vector<BundledCase> cases;
  bool parity() const;
};

// Executes a method on the inputs of a case. kBadInput if the method does not accept the inputs.
Status execute_case(runner::Method& method, const pte::TestCase& test, const std::string& name);

// Whether the file at `path` begins as a bundled program does.
bool is_bundled_file(const std::string& path);

// Executes all cases in their order, with one state per method. The default of `tolerance` is 1e-4,
// 0.02 if constants of the program are f16, and 0.1 if they are bf16. kBadInput if there is no
// case.
Result<BundledProof> prove_bundled(const std::string& path, std::optional<double> tolerance,
                                   std::optional<uint64_t> memory, ThreadPool& pool);

}  // namespace ferry::proof
