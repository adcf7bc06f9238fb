#include "proof/weight_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/parity.h"
#include "runner/method.h"

namespace ferry::proof {
namespace {

// Layers before the matrix are not executed again, so a matrix takes the time of half as many
// tokens of the whole model on average.
constexpr size_t kSequences = 4, kTokens = 64;

// Returns the beginnings of sequences that lie equally far apart.
Prompts beginnings_of(const Prompts& sequences) {
  Prompts taken;
  const size_t count = std::min(kSequences, sequences.size());
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& whole = sequences[i * sequences.size() / count];
    taken.emplace_back(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(
                                                          std::min(kTokens, whole.size())));
  }
  return taken;
}

std::vector<float> logits_of(const PassedTensors& passed) {
  const Passed& logits = passed.at(std::string(kLogitsPort));
  return runner::probe_floats({logits.dtype, logits.shape, logits.bytes});
}

}  // namespace

DivergenceMeter::DivergenceMeter(const Prompts& sequences, ThreadPool& pool, std::string name)
    : sequences_(beginnings_of(sequences)),
      pool_(pool),
      name_(std::move(name)),
      exact_(sequences_.size()) {}

Status DivergenceMeter::run(LoadedPart& part, States& states) const {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    part.method().reset();
    FERRY_RETURN_IF_ERROR(part.run(sequences_[i], 0, states[i]));
  }
  return {};
}

Status DivergenceMeter::advance(const graph::Model& part, const std::vector<std::string>& weights,
                                const ReadWeight& exact, const ReadWeight& coded, bool last) {
  const States before = exact_;
  const auto loaded = FERRY_TRY(LoadedPart::load(part, exact, pool_, name_));
  FERRY_RETURN_IF_ERROR(run(*loaded, exact_));
  std::vector<std::vector<float>> logits;
  if (last) std::ranges::transform(exact_, std::back_inserter(logits), logits_of);
  for (Variant& variant : variants_) {
    FERRY_RETURN_IF_ERROR(run(*loaded, variant.states));
    if (last) FERRY_RETURN_IF_ERROR(compare(logits, variant));
  }
  for (const std::string& name : weights) {
    const auto read = [&](const graph::Weight& weight, uint64_t offset, std::span<std::byte> out) {
      return (weight.name == name ? coded : exact)(weight, offset, out);
    };
    const auto changed = FERRY_TRY(LoadedPart::load(part, read, pool_, name_));
    Variant& variant = variants_.emplace_back(Variant{name, before});
    FERRY_RETURN_IF_ERROR(run(*changed, variant.states));
    if (last) FERRY_RETURN_IF_ERROR(compare(logits, variant));
  }
  return {};
}

Status DivergenceMeter::compare(const std::vector<std::vector<float>>& exact, Variant& variant) {
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const std::vector<float>& want = exact[i];
    const std::vector<float> got = logits_of(variant.states[i]);
    const size_t tokens = sequences_[i].size(), vocab = want.size() / tokens;
    std::vector<double> kl(tokens);
    pool_.parallel_for(tokens, [&](size_t t) {
      kl[t] = kl_divergence(std::span(got).subspan(t * vocab, vocab),
                            std::span(want).subspan(t * vocab, vocab));
    });
    for (const double token : kl) sum += token;
    count += tokens;
  }
  if (!std::isfinite(sum)) {
    return bad_input(fmt::format("{}: predictions with the codes of {} are not finite",
                                 printable(name_), quoted(variant.weight)));
  }
  divergences_.emplace_back(variant.weight, sum / static_cast<double>(count));
  variant.states.clear();
  return {};
}

}  // namespace ferry::proof
