#include "proof/code_comparison.h"

#include <fmt/format.h>

#include <utility>

#include "core/text.h"

namespace ferry::proof {
namespace {

// The codes differ by much more than the divergence of so many tokens varies.
constexpr size_t kCompared = 8, kComparedTokens = 64;

}  // namespace

CodeComparison::CodeComparison(const Sequences& sequences, ThreadPool& pool, std::string name)
    : sequences_(sequences.beginnings(kCompared, kComparedTokens)),
      pool_(pool),
      name_(std::move(name)) {
  for (Execution* execution : {&exact_, &nearest_, &chosen_}) {
    execution->states.resize(sequences_.size());
  }
}

Status CodeComparison::run(const graph::Model& part, std::string_view role,
                           const std::vector<LinearInput>& inputs, const ReadWeight& weights,
                           Execution& execution) const {
  const auto loaded = FERRY_TRY(LoadedPart::load(part, weights, pool_, name_));
  return run_rounded(*loaded, role, inputs, sequences_, execution.states);
}

Status CodeComparison::advance(const graph::Model& part, std::string_view role,
                               const std::vector<LinearInput>& inputs, const Weights& weights,
                               bool last) {
  FERRY_RETURN_IF_ERROR(run(part, role, {}, weights.exact, exact_));
  FERRY_RETURN_IF_ERROR(run(part, role, inputs, weights.nearest, nearest_));
  FERRY_RETURN_IF_ERROR(run(part, role, inputs, weights.chosen, chosen_));
  if (!last) return {};
  const std::vector<std::vector<float>> logits = logits_of(exact_.states);
  for (Execution* execution : {&nearest_, &chosen_}) {
    const auto divergence = mean_divergence(sequences_.tokens, logits, execution->states, pool_);
    if (!divergence) {
      return bad_input(fmt::format("{}: predictions with codes are not finite", printable(name_)));
    }
    execution->divergence = *divergence;
    execution->states.clear();
  }
  return {};
}

}  // namespace ferry::proof
