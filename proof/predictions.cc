#include "proof/predictions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string>

#include "core/program_interface.h"
#include "proof/parity.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

std::vector<float> logits_of(const PassedTensors& state) {
  const Passed& logits = state.at(std::string(kLogitsPort));
  return runner::probe_floats({logits.dtype, logits.shape, logits.bytes});
}

}  // namespace

std::vector<std::vector<float>> logits_of(const std::vector<PassedTensors>& states) {
  std::vector<std::vector<float>> logits;
  for (const PassedTensors& state : states) logits.push_back(logits_of(state));
  return logits;
}

std::optional<double> mean_divergence(const Prompts& sequences,
                                      const std::vector<std::vector<float>>& exact,
                                      const std::vector<PassedTensors>& states, ThreadPool& pool) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<float>& want = exact[i];
    const std::vector<float> got = logits_of(states[i]);
    const size_t tokens = sequences[i].size(), vocab = want.size() / tokens;
    std::vector<double> kl(tokens);
    pool.parallel_for(tokens, [&](size_t t) {
      kl[t] = kl_divergence(std::span(got).subspan(t * vocab, vocab),
                            std::span(want).subspan(t * vocab, vocab));
    });
    for (const double token : kl) sum += token;
    count += tokens;
  }
  if (!std::isfinite(sum)) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace ferry::proof
