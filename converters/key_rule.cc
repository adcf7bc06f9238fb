#include "converters/key_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "converters/key_pattern.h"
#include "core/text.h"

namespace ferry {
namespace {

// The nearest known key is looked for only for so many unknown keys, of at most this length.
constexpr size_t kMaxSuggestions = 64;
constexpr size_t kMaxSuggestionLength = 160;
constexpr int64_t kMaxMissingExperts = 64;  // that are listed of one weight

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// The known key nearest to `key`, with its numbers put in; empty if none is near.
std::string nearest_key(const std::vector<KeyRule>& rules, const std::string& key) {
  if (key.size() > kMaxSuggestionLength) return {};
  const KeyNumbers numbers = {number_after(key, "layers."), number_after(key, "experts.")};
  std::string best;
  size_t best_distance = key.size() / 3 + 1;
  for (const KeyRule& rule : rules) {
    if (rule.kind == KeyRule::Kind::kDrop) continue;
    std::string candidate = fill_in(rule.source, numbers);
    const size_t distance = edit_distance(key, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = std::move(candidate);
    }
  }
  return best;
}

bool is_convertible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// The shape of an expression whose rows have been chosen; its matrices keep equally many each.
void set_row_count(TensorExpr& expr) {
  if (expr.shape.size() < expr.row_rank) return;
  int64_t count = 0;
  for (const RowRun& run : expr.rows) count += run.count;
  for (size_t i = 0; i + 1 < expr.row_rank; ++i) count /= expr.shape[i];
  expr.shape[expr.row_rank - 1] = count;
}

class Mapper {
 public:
  Mapper(const TensorSource& source, const ModelConfig& config, const std::vector<KeyRule>& rules,
         const MappingOptions& options)
      : source_(source), config_(config), rules_(rules), options_(options) {
    for (const KeyRule& rule : rules) patterns_.emplace_back(rule.source);
    out.matched.assign(rules.size(), false);
  }

  Status map_entry(size_t index) {
    const TensorEntry& entry = source_.entries()[index];
    const KeyRule* rule = nullptr;
    KeyNumbers found;
    std::string excess;  // why a key that looks known is not
    for (size_t r = 0; r < rules_.size(); ++r) {
      std::optional<KeyNumbers> matched = patterns_[r].match(entry.name);
      if (matched) excess = excess_of(*matched);
      if (!matched || !excess.empty()) continue;
      if (rule != nullptr) {
        return fail(ErrorCode::kInternal,
                    fmt::format("key {} matches the rules '{}' and '{}'", quoted(entry.name),
                                rule->name, rules_[r].name));
      }
      rule = &rules_[r];
      out.matched[r] = true;
      found = std::move(*matched);
    }
    if (rule == nullptr) {
      unmapped(entry, excess);
    } else if (rule->kind == KeyRule::Kind::kDrop) {
      out.report.entries.push_back({entry.name, {}, rule->name, rule->reason});
    } else {
      apply(*rule, index, found);
    }
    return {};
  }

  // To be called after the last entry.
  void finish_stacks() {
    for (Stack& stack : stacks_) finish(stack);
  }

  void tie(const TieRule& tie) {
    if (out.weights.find(tie.target) != nullptr) return;
    const Weight* same = out.weights.find(tie.same_as);
    if (same == nullptr) return;  // reported as missing by itself
    (void)out.weights.add({.name = tie.target, .expr = same->expr, .rule = tie.name});
    out.report.entries.push_back({"", {tie.target}, tie.name, "the same as " + tie.same_as});
  }

  MappedKeys out;

 private:
  void problem(KeyProblem::Kind kind, const TensorEntry& entry, std::string message) {
    out.problems.push_back({kind, entry.name, std::move(message)});
  }

  // A sentence if the config has fewer layers or experts than the key says.
  std::string excess_of(const KeyNumbers& numbers) const {
    const auto below = [](const std::string& digits, int64_t count) {
      int64_t number = 0;
      const char* end = digits.data() + digits.size();
      return digits.empty() ||
             (std::from_chars(digits.data(), end, number).ec == std::errc{} && number < count);
    };
    if (!below(numbers.layer, config_.num_layers)) {
      return fmt::format("the config has {} layers", config_.num_layers);
    }
    if (!below(numbers.expert, config_.moe.experts)) {
      return fmt::format("the config has {} experts", config_.moe.experts);
    }
    return {};
  }

  void unmapped(const TensorEntry& entry, const std::string& excess) {
    for (const std::string& glob : options_.allow_unmapped) {
      if (!glob_match(glob, entry.name)) continue;
      out.report.allowed.push_back(entry.name);
      out.report.entries.push_back(
          {entry.name, {}, "allowed unmapped", "--allow-unmapped " + glob});
      return;
    }
    std::string message = fmt::format("unmapped: {} {} {}", quoted(entry.name),
                                      dtype_name(entry.dtype), to_string(entry.shape));
    if (!excess.empty()) {
      message += fmt::format(" ({})", excess);
    } else if (suggestions_++ < kMaxSuggestions) {
      const std::string near = nearest_key(rules_, entry.name);
      if (!near.empty()) message += fmt::format(" (nearest known key: {})", quoted(near));
    }
    problem(KeyProblem::Kind::kUnmapped, entry, std::move(message));
  }

  // Whether the entry by itself is what the rule takes.
  bool check(const KeyRule& rule, const TensorEntry& entry) {
    if (!is_convertible(entry.dtype)) {
      problem(KeyProblem::Kind::kDType, entry,
              fmt::format("dtype: {} is {}, expected f32, f16 or bf16", quoted(entry.name),
                          dtype_name(entry.dtype)));
      return false;
    }
    if (rule.expected_shape && entry.shape != rule.expected_shape(config_)) {
      problem(KeyProblem::Kind::kShape, entry,
              fmt::format("shape: {} {}, the config wants {}", quoted(entry.name),
                          to_string(entry.shape), to_string(rule.expected_shape(config_))));
      return false;
    }
    const int64_t rows = entry.shape.empty() ? 1 : entry.shape[0];
    if (rule.expected_rows && rows != rule.expected_rows(config_)) {
      problem(
          KeyProblem::Kind::kShape, entry,
          fmt::format("shape: {} {} has {} rows, the config wants {} for '{}'", quoted(entry.name),
                      to_string(entry.shape), rows, rule.expected_rows(config_), rule.name));
      return false;
    }
    return true;
  }

  void apply(const KeyRule& rule, size_t index, const KeyNumbers& numbers) {
    const TensorEntry& entry = source_.entries()[index];
    if (rule.kind == KeyRule::Kind::kStack) return add_to_stack(rule, index, numbers);
    if (!check(rule, entry)) return;
    MappedEntry mapped{entry.name, {}, rule.name, rule.reason};
    for (const RuleTarget& target : rule.targets) {
      std::string name = fill_in(target.name, numbers);
      TensorExpr expr = expr_of_entry(source_, index);
      expr.steps = rule.steps;
      if (target.rows) {
        expr.rows = target.rows(config_);
        for (RowRun& run : expr.rows) run.entry = index;
        expr.row_rank = target.row_rank;
        set_row_count(expr);
      }
      if (const auto [other, fresh] = made_by_.emplace(name, entry.name); !fresh) {
        duplicate(entry, other->second, name);
        continue;
      }
      mapped.targets.push_back(name);
      (void)out.weights.add({.name = std::move(name), .expr = std::move(expr), .rule = rule.name});
    }
    out.report.entries.push_back(std::move(mapped));
  }

  void duplicate(const TensorEntry& entry, const std::string& other, const std::string& target) {
    problem(KeyProblem::Kind::kDuplicate, entry,
            fmt::format("duplicate: {} and {} both make {}", quoted(other), quoted(entry.name),
                        target));
  }

  // -- stacks: one weight of the matrices of all experts
  struct Stack {
    const KeyRule* rule;
    KeyNumbers numbers;  // the layer
    std::string target;
    std::map<int64_t, size_t> parts;  // expert -> entry
  };

  void add_to_stack(const KeyRule& rule, size_t index, const KeyNumbers& numbers) {
    const TensorEntry& entry = source_.entries()[index];
    const std::string target = fill_in(rule.targets[0].name, numbers);
    const auto [known, fresh] = stack_of_.try_emplace(target, stacks_.size());
    if (fresh) {
      if (const auto [other, first] = made_by_.emplace(target, entry.name); !first) {
        stack_of_.erase(known);
        return duplicate(entry, other->second, target);
      }
      stacks_.push_back({&rule, numbers, target, {}});
    }
    Stack& stack = stacks_[known->second];
    const auto [part, added] = stack.parts.emplace(std::stoll(numbers.expert), index);
    if (!added) return duplicate(entry, source_.entries()[part->second].name, target);
    const TensorEntry& first = source_.entries()[stack.parts.begin()->second];
    if (check(rule, entry) && is_convertible(first.dtype) && entry.dtype != first.dtype) {
      problem(KeyProblem::Kind::kDType, entry,
              fmt::format("dtype: {} is {}, but {} is {}", quoted(entry.name),
                          dtype_name(entry.dtype), quoted(first.name), dtype_name(first.dtype)));
    }
    out.report.entries.push_back({entry.name, {target}, rule.name, rule.reason});
  }

  // The weight is there even if parts of it are missing: the problem says which.
  void finish(Stack& stack) {
    const Shape part = stack.rule->expected_shape(config_);
    TensorExpr expr;
    expr.source_dtype = source_.entries()[stack.parts.begin()->second].dtype;
    expr.dtype = expr.source_dtype;
    expr.shape = part;
    expr.shape.insert(expr.shape.begin(), config_.moe.experts);
    expr.steps = stack.rule->steps;
    int64_t missing = 0;
    for (int64_t e = 0; e < config_.moe.experts; ++e) {
      if (const auto known = stack.parts.find(e); known != stack.parts.end()) {
        expr.rows.push_back({.entry = known->second, .begin = 0, .count = part[0]});
      } else if (++missing <= kMaxMissingExperts) {
        stack.numbers.expert = std::to_string(e);
        const std::string key = fill_in(stack.rule->source, stack.numbers);
        out.problems.push_back({KeyProblem::Kind::kMissing, key,
                                fmt::format("missing: {} {} (for {})", quoted(key),
                                            to_string(part), stack.target)});
      }
    }
    if (missing > kMaxMissingExperts) {
      out.problems.push_back({KeyProblem::Kind::kMissing, stack.target,
                              fmt::format("missing: {} more experts of {}",
                                          missing - kMaxMissingExperts, stack.target)});
    }
    (void)out.weights.add(
        {.name = stack.target, .expr = std::move(expr), .rule = stack.rule->name});
  }

  const TensorSource& source_;
  const ModelConfig& config_;
  const std::vector<KeyRule>& rules_;
  const MappingOptions& options_;
  std::vector<KeyPattern> patterns_;
  std::map<std::string, std::string> made_by_;  // target -> source key
  std::vector<Stack> stacks_;                 // as their first parts come
  std::map<std::string, size_t> stack_of_;    // by target
  size_t suggestions_ = 0;
};

}  // namespace

Result<MappedKeys> map_keys(const TensorSource& source, const ModelConfig& config,
                            const std::vector<KeyRule>& rules, const std::vector<TieRule>& ties,
                            const MappingOptions& options) {
  Mapper mapper(source, config, rules, options);
  for (size_t i = 0; i < source.entries().size(); ++i) FERRY_CHECK(mapper.map_entry(i));
  mapper.finish_stacks();
  for (const TieRule& tie : ties) mapper.tie(tie);
  return std::move(mapper.out);
}

std::string expected_key(const std::vector<KeyRule>& rules, const std::string& target,
                         const std::vector<bool>& matched) {
  std::string first;
  for (size_t r = 0; r < rules.size(); ++r) {
    for (const RuleTarget& made : rules[r].targets) {
      const std::optional<KeyNumbers> numbers = KeyPattern(made.name).match(target);
      if (!numbers) continue;
      std::string key = fill_in(rules[r].source, *numbers);
      if (r < matched.size() && matched[r]) return key;
      if (first.empty()) first = std::move(key);
    }
  }
  return first;
}

}  // namespace ferry
