// plan_budget() chooses the scheme of each matrix, so that a bundle has at most a given size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "graph/passes/quantize_weights.h"
#include "plan/conversion.h"
#include "proof/progress.h"
#include "proof/sequences.h"

namespace ferry::proof {

struct BudgetedMatrix {
  std::string weight;
  graph::LinearQuantization scheme;
  uint64_t bytes = 0;
  double divergence = 0;  // predicted for this matrix alone, in nats; see MatrixCost
};

struct BudgetPlan {
  graph::LinearQuantization linears;       // as the options say
  std::vector<BudgetedMatrix> matrices;    // in the order of the model
  std::vector<graph::QuantizeRule> rules;  // for matrices with other schemes than the options say
  uint64_t bytes = 0;                      // of the whole bundle
  double divergence = 0;                   // the sum over the matrices

  std::string line() const;  // for people
};

// A size that is requested: bytes, or bits of the whole bundle per weight of the model.
struct Budget {
  uint64_t bytes = 0;
  double bits_per_weight = 0;  // 0 if `bytes` counts
};
// Reads "105MB" (parse_size) or "4.6bpw". kUsage for anything else; the message has no option name.
Result<Budget> read_budget(const std::string& text);

// The choice is among 4 bits with groups of 32, 64 and 128, 8 bits, and the dtype that --dtype
// gives (graph::LinearQuantization). Matrices that a rule of `options` names have its scheme, and
// the head of a tied model shares the embedding's table. `options` quantise linear weights as
// k8da4w. kUsage for other schemes and if the smallest bundle is larger than the budget.
Result<BudgetPlan> plan_budget(const plan::ConvertOptions& options, const Budget& budget,
                               const Sequences& sequences, ThreadPool& pool,
                               const Progress& progress = {});

// Returns the plan as a file for plan::read_quantize_plan().
std::string plan_text(const BudgetPlan& plan);

}  // namespace ferry::proof
