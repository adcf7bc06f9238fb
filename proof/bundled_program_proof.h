// prove_bundled(): a bundled program gives what its own test cases expect.
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
  size_t index = 0;    // of the case among those of its method
  double max_abs = 0;  // largest difference of a value; infinite where kinds or shapes differ
  bool within = false;
};

struct BundledProof {
  // A value may differ by it and by as much of what is expected; by default, with weights that are
  // f16 or bf16, the errors of an output by it, as a share of what is expected (root mean squares).
  double tolerance = 0;
  std::vector<BundledCase> cases;
  bool parity() const;
};

// Executes a method on the inputs of a case. kBadInput where they are not those that it takes.
Status execute_case(runner::Method& method, const pte::TestCase& test, const std::string& name);

// Whether the first bytes of the file at `path` are those of a bundled program.
bool is_bundled_file(const std::string& path);

// Executes all cases, in their order, on one state for each method. The default of `tolerance` is
// 1e-4, 0.02 where constants of the program are f16 and 0.1 where they are bf16. kBadInput where
// there is no case.
Result<BundledProof> prove_bundled(const std::string& path, std::optional<double> tolerance,
                                   std::optional<uint64_t> memory, ThreadPool& pool);

}  // namespace ferry::proof
