#include "converters/keys/undo_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "converters/keys/key_pattern.h"
#include "core/checked.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using graph::Step;

Failure cannot_undo(const std::string& weight, std::string_view why) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("the weight {} has no Hugging Face key: {}", quoted(weight), why));
}

// Rows [source, source + count) of a source tensor. In its targets, one after the other, they begin
// at row `target` and lie `stride` rows apart.
struct RowRun {
  int64_t source = 0, target = 0, count = 0, stride = 1;
};

// Adds the runs of a piece that makes the rows of targets from `target` on. A run goes along the
// axis that is consecutive in the source, wherever that axis lies in the target.
void add_runs(const StridedPiece& piece, int64_t target, std::vector<RowRun>& runs) {
  std::vector<int64_t> strides(piece.axes.size(), 1);  // strides of the axes in the target
  for (size_t i = piece.axes.size(); i-- > 1;) strides[i - 1] = strides[i] * piece.axes[i].size;
  const auto along = static_cast<size_t>(std::ranges::find(piece.axes, 1, &StridedAxis::stride) -
                                         piece.axes.begin());
  const bool has_run = along < piece.axes.size();
  const int64_t length = has_run ? piece.axes[along].size : 1;
  const int64_t count = length == 0 ? 0 : piece.count() / length;
  for (int64_t i = 0; i < count; ++i) {
    RowRun run{piece.offset, target, length, has_run ? strides[along] : 1};
    int64_t rest = i;
    for (size_t axis = piece.axes.size(); axis-- > 0;) {
      if (axis == along) continue;
      const int64_t index = rest % piece.axes[axis].size;
      rest /= piece.axes[axis].size;
      run.source += index * piece.axes[axis].stride;
      run.target += index * strides[axis];
    }
    runs.push_back(run);
  }
}

// Returns the step that undoes `step`; nullopt where none does.
std::optional<Step> reverse_of(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kAdd:
      return Step{.kind = Step::Kind::kAdd, .value = -step.value};
    case Step::Kind::kMul:
      if (step.value == 0) return std::nullopt;
      return Step{.kind = Step::Kind::kMul, .value = 1 / step.value};
    case Step::Kind::kNegExp:
      return Step{.kind = Step::Kind::kLogNegated};
    case Step::Kind::kLogNegated:
      return Step{.kind = Step::Kind::kNegExp};
    default:
      return std::nullopt;
  }
}

// A rule that makes a weight, with the numbers in its name.
struct Candidate {
  const KeyRule* rule = nullptr;
  KeyNumbers numbers;
  int rank = -1;
};

class Undoer {
 public:
  Undoer(const graph::StateDict& weights, const ModelConfig& config,
         const std::vector<KeyRule>& rules, const std::set<std::string>& known)
      : weights_(weights), config_(config), rules_(rules), known_(known) {
    for (const KeyRule& rule : rules) {
      std::vector<KeyPattern>& patterns = patterns_.emplace_back();
      for (const RuleTarget& target : rule.targets) patterns.emplace_back(target.name);
    }
  }

  Result<std::vector<UndoneTensor>> run(const std::vector<TieRule>& ties) {
    for (const graph::Weight& weight : weights_.weights()) {
      if (done_.contains(weight.name)) continue;
      const Candidate best = candidate_for(weight.name);
      const bool tied = std::ranges::count(ties, weight.name, &TieRule::target) > 0;
      if (tied && best.rank < kKnown) continue;
      if (best.rule == nullptr) return cannot_undo(weight.name, "no rule makes it");
      FERRY_RETURN_IF_ERROR(undo(*best.rule, best.numbers));
    }
    return std::move(out_);
  }

 private:
  static constexpr int kKnown = 2;

  Candidate candidate_for(const std::string& weight) const {
    Candidate best;
    for (size_t r = 0; r < rules_.size(); ++r) {
      for (const KeyPattern& pattern : patterns_[r]) {
        std::optional<KeyNumbers> numbers = pattern.match(weight);
        if (!numbers) continue;
        const int rank = rank_of(rules_[r], *numbers);
        if (rank > best.rank) best = {&rules_[r], *std::move(numbers), rank};
      }
    }
    return best;
  }

  int rank_of(const KeyRule& rule, const KeyNumbers& numbers) const {
    for (const RuleTarget& target : rule.targets) {
      if (weights_.find(fill_in(target.name, numbers)) == nullptr) return -1;
    }
    if (rule.kind == KeyRule::Kind::kJoin) return -1;  // nothing says how many rows a part had
    if ((rule.layout && !rule.own_layout) || rule.name == kDialectRule) return 0;
    return known_.contains(fill_in(rule.source, numbers)) ? kKnown : 1;
  }

  Status undo(const KeyRule& rule, const KeyNumbers& numbers) {
    std::vector<std::string> names;
    for (const RuleTarget& target : rule.targets) {
      names.push_back(fill_in(target.name, numbers));
      done_.insert(names.back());
    }
    if (rule.kind == KeyRule::Kind::kStack) return undo_stack(rule, numbers, names);
    graph::Recipe recipe = FERRY_TRY(joined(names));
    if (rule.targets.size() > 1 || rule.targets[0].rows) {
      FERRY_RETURN_IF_ERROR(put_back_rows(rule, names, recipe));
    }
    return add(rule, fill_in(rule.source, numbers), names, std::move(recipe));
  }

  // Adds the matrices of all experts, each under its own key.
  Status undo_stack(const KeyRule& rule, KeyNumbers numbers,
                    const std::vector<std::string>& names) {
    const graph::Recipe& stack = weights_.find(names[0])->recipe;
    const Shape part = rule.expected_shape(config_);
    const int64_t elements = checked_numel(part).value_or(0);
    const int64_t count = rule.stacked > 0 ? rule.stacked : config_.moe.experts;
    for (int64_t e = 0; e < count; ++e) {
      graph::Recipe recipe = stack;
      const StridedPiece whole = run_piece(0, e * elements, elements);
      recipe.pieces = select(stack.pieces, std::span(&whole, 1));
      recipe.output().shape = part;
      numbers.expert = std::to_string(e);
      FERRY_RETURN_IF_ERROR(add(rule, fill_in(rule.source, numbers), names, std::move(recipe)));
    }
    return {};
  }

  // Returns the elements of the weights, one after the other.
  Result<graph::Recipe> joined(const std::vector<std::string>& names) const {
    graph::Recipe all = weights_.find(names[0])->recipe;
    for (size_t i = 1; i < names.size(); ++i) {
      const graph::Recipe& next = weights_.find(names[i])->recipe;
      if (next.steps != all.steps || next.source_dtype != all.source_dtype) {
        return cannot_undo(names[i], fmt::format("it is stored in another form than {}, with "
                                                 "which it shares a tensor",
                                                 quoted(names[0])));
      }
      std::ranges::copy(next.pieces, std::back_inserter(all.pieces));
    }
    return all;
  }

  // Puts the rows of all targets into the order of the source.
  Status put_back_rows(const KeyRule& rule, const std::vector<std::string>& names,
                       graph::Recipe& recipe) const {
    const Shape& first = weights_.find(names[0])->recipe.output().shape;
    Shape shape = rule.expected_shape ? rule.expected_shape(config_) : first;
    const bool elements_alone = rule.targets[0].elements;
    const int64_t width = shape.size() < 2 || elements_alone ? 1 : shape.back();
    std::vector<RowRun> runs;
    int64_t rows = 0;
    for (const RuleTarget& target : rule.targets) {
      if (target.shape && !rule.expected_shape) {
        return cannot_undo(names[0], fmt::format("'{}' does not state its shape", rule.name));
      }
      for (const StridedPiece& piece : rows_of(target, names[0])) {
        add_runs(piece, rows, runs);
        rows += piece.count();
      }
    }
    std::ranges::sort(runs, {}, &RowRun::source);
    std::vector<StridedPiece> order;
    int64_t end = 0;
    for (const RowRun& run : runs) {
      if (run.source != end) return cannot_undo(names[0], "some rows are in no weight");
      StridedPiece& piece = order.emplace_back(StridedPiece{.offset = run.target});
      add_axis(piece, {run.count, run.stride});
      end += run.count;
    }
    int64_t elements = 0;
    for (const StridedPiece& piece : recipe.pieces) elements += piece.count();
    if (checked_mul(rows, width) != elements) {
      return cannot_undo(names[0], "its rows are not those that the config states");
    }
    recipe.pieces = select(recipe.pieces, rows_to_elements(folded(order), width));
    if (!rule.expected_shape && !shape.empty()) {
      const int64_t inner = std::accumulate(shape.begin() + 1, shape.end(), int64_t{1},
                                            [](int64_t a, int64_t b) { return a * b; });
      shape[0] = inner == 0 ? 0 : elements / inner;
    }
    if (checked_numel(shape) != elements) return cannot_undo(names[0], "its shape is another one");
    recipe.output().shape = std::move(shape);
    return {};
  }

  // Returns the rows of the source that make `target`: all of them where the rule does not say.
  std::vector<StridedPiece> rows_of(const RuleTarget& target, const std::string& name) const {
    if (target.rows) return target.rows(config_);
    const Shape& shape = weights_.find(name)->recipe.output().shape;
    const int64_t width = shape.size() < 2 ? 1 : shape.back();
    return {run_piece(0, 0, width == 0 ? 0 : checked_numel(shape).value_or(0) / width)};
  }

  Status add(const KeyRule& rule, std::string key, const std::vector<std::string>& names,
             graph::Recipe recipe) {
    UndoneTensor& made = out_.emplace_back();
    for (size_t i = rule.steps.size(); i-- > 0;) {
      const Step& step = rule.steps[i];
      if (!recipe.steps.empty() && recipe.steps.back() == step) {
        recipe.steps.pop_back();
        continue;
      }
      const std::optional<Step> reverse = reverse_of(step);
      if (!reverse) return cannot_undo(names[0], fmt::format("'{}' loses values", rule.name));
      recipe.apply(*reverse);
      made.computed = true;
    }
    if (recipe.steps.empty()) recipe.output().dtype = recipe.source_dtype;
    made.tensor = {.key = std::move(key), .recipe = std::move(recipe)};
    made.weights = names;
    return {};
  }

  const graph::StateDict& weights_;
  const ModelConfig& config_;
  const std::vector<KeyRule>& rules_;
  const std::set<std::string>& known_;
  std::vector<std::vector<KeyPattern>> patterns_;  // patterns of the targets of each rule
  std::set<std::string> done_;                     // names of undone weights
  std::vector<UndoneTensor> out_;
};

}  // namespace

std::vector<KeyRule> dialect_rules(std::vector<KeyRule> rules) {
  for (KeyRule& rule : rules) rule.name = kDialectRule;
  return rules;
}

Result<std::vector<UndoneTensor>> undo_keys(const graph::StateDict& weights,
                                            const ModelConfig& config,
                                            const std::vector<KeyRule>& rules,
                                            const std::vector<TieRule>& ties,
                                            const std::set<std::string>& known) {
  return Undoer(weights, config, rules, known).run(ties);
}

}  // namespace ferry::converters
