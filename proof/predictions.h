// Functions that compare the predictions of two executions of a model for the same tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/thread_pool.h"
#include "proof/checkpoint_execution.h"
#include "proof/prompts.h"

namespace ferry::proof {

// Returns the logits that the last part of a model gave: [tokens, vocab] for each sequence.
std::vector<std::vector<float>> logits_of(const std::vector<PassedTensors>& states);

// Returns the mean over all tokens of KL(p || q) in nats, where p predicts by the logits `exact`
// and q by those of `states`. Empty if it is not finite.
std::optional<double> mean_divergence(const Prompts& sequences,
                                      const std::vector<std::vector<float>>& exact,
                                      const std::vector<PassedTensors>& states, ThreadPool& pool);

}  // namespace ferry::proof
