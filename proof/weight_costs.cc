#include "proof/weight_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/parity.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

// Layers before the matrix are not executed again, so a matrix takes the time of half as many
// tokens of the whole model on average.
constexpr size_t kSequences = 4, kTokens = 64;

std::vector<float> logits_of(const PassedTensors& state) {
  const Passed& logits = state.at(std::string(kLogitsPort));
  return runner::probe_floats({logits.dtype, logits.shape, logits.bytes});
}

// Returns the logits that the last part of a model gave: [tokens, vocab] for each sequence.
std::vector<std::vector<float>> logits_of(const std::vector<PassedTensors>& states) {
  std::vector<std::vector<float>> logits;
  for (const PassedTensors& state : states) logits.push_back(logits_of(state));
  return logits;
}

// Returns the mean over all tokens of KL(p || q) in nats, where p predicts by the logits `exact`
// and q by those of `states`. Empty if it is not finite.
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

}  // namespace

DivergenceMeter::DivergenceMeter(const Sequences& sequences, ThreadPool& pool, std::string name)
    : sequences_(sequences.beginnings(kSequences, kTokens)),
      pool_(pool),
      name_(std::move(name)),
      exact_(sequences_.size()) {}

Status DivergenceMeter::run(LoadedPart& part, std::string_view role, States& states) const {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    FERRY_RETURN_IF_ERROR(sequences_.run(part, role, i, states[i]));
  }
  return {};
}

Status DivergenceMeter::advance(const graph::Model& part, std::string_view role,
                                const std::vector<std::string>& weights, const ReadWeight& exact,
                                const ReadWeight& coded, bool last) {
  const States before = exact_;
  const auto loaded = FERRY_TRY(LoadedPart::load(part, exact, pool_, name_));
  FERRY_RETURN_IF_ERROR(run(*loaded, role, exact_));
  std::vector<std::vector<float>> logits;
  if (last) logits = logits_of(exact_);
  for (Variant& variant : variants_) {
    FERRY_RETURN_IF_ERROR(run(*loaded, role, variant.states));
    if (last) FERRY_RETURN_IF_ERROR(compare(logits, variant));
  }
  for (const std::string& name : weights) {
    const auto read = [&](const graph::Weight& weight, uint64_t offset, std::span<std::byte> out) {
      return (weight.name == name ? coded : exact)(weight, offset, out);
    };
    const auto changed = FERRY_TRY(LoadedPart::load(part, read, pool_, name_));
    Variant& variant = variants_.emplace_back(Variant{name, before});
    FERRY_RETURN_IF_ERROR(run(*changed, role, variant.states));
    if (last) FERRY_RETURN_IF_ERROR(compare(logits, variant));
  }
  return {};
}

Status DivergenceMeter::compare(const std::vector<std::vector<float>>& exact, Variant& variant) {
  const auto divergence = mean_divergence(sequences_.tokens, exact, variant.states, pool_);
  if (!divergence) {
    return bad_input(fmt::format("{}: predictions with the codes of {} are not finite",
                                 printable(name_), quoted(variant.weight)));
  }
  divergences_.emplace_back(variant.weight, *divergence);
  variant.states.clear();
  return {};
}

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
