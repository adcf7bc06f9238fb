#include "proof/weight_costs.h"

#include <fmt/format.h>

#include "core/text.h"
#include "proof/predictions.h"

namespace ferry::proof {
namespace {

// Layers before the matrix are not executed again, so a matrix takes the time of half as many
// tokens of the whole model on average.
constexpr size_t kSequences = 4, kTokens = 64;

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

}  // namespace ferry::proof
