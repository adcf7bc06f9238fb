#include "converters/keys/key_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "converters/keys/key_pattern.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// The nearest known key is looked for only for so many unknown keys, of at most this length.
constexpr size_t kMaxSuggestions = 64;
constexpr size_t kMaxSuggestionLength = 160;
constexpr int64_t kMaxMissingExperts = 64;  // that are listed of one weight

// The layer number in `key`: its first number between "." or "_" and "." or "/". Of the first layer
// where there is none.
std::string layer_in(std::string_view key) {
  for (size_t at = 1; at < key.size(); ++at) {
    if (key[at - 1] != '.' && key[at - 1] != '_') continue;
    const std::string_view digits = leading_number(key.substr(at));
    const size_t end = at + digits.size();
    if (!digits.empty() && end < key.size() && (key[end] == '.' || key[end] == '/')) {
      return std::string(digits);
    }
  }
  return "0";
}

// The known key nearest to `key`, with its layer number put in, as the format calls it; empty if
// none is near.
std::string nearest_key(const std::vector<KeyRule>& rules, const MappingOptions& options,
                        const std::string& key) {
  if (key.size() > kMaxSuggestionLength) return {};
  std::string best;
  size_t best_distance = key.size() / 3 + 1;
  // A number may belong to another name than the layer's, where the first layer has none.
  for (const std::string& layer : {layer_in(key), std::string("0")}) {
    for (const KeyRule& rule : rules) {
      if (rule.kind == KeyRule::Kind::kDrop) continue;
      std::string candidate = fill_in(rule.source, {layer, number_after(key, "experts.")});
      const auto stored = options.stored_names.find(candidate);
      if (stored != options.stored_names.end()) candidate = stored->second;
      const size_t distance = edit_distance(key, candidate);
      if (distance < best_distance) {
        best_distance = distance;
        best = std::move(candidate);
      }
    }
  }
  return best;
}

// Wrappers of PyTorch that put a prefix before all keys of a state dict.
struct Wrapper {
  std::string_view prefix, rule;
};
constexpr Wrapper kWrappers[] = {
    {"_orig_mod.", "torch.compile"}, {"module.", "DataParallel"},  // and DistributedDataParallel
};

// The prefixes that all keys have. Where only some have them nothing is taken off: two keys could
// mean one tensor.
std::vector<TakenPrefix> prefixes_of(const TensorSource& source) {
  std::vector<TakenPrefix> taken;
  if (source.entries().empty()) return taken;
  size_t length = 0;
  const auto all_have = [&](const Wrapper& wrapper) {
    return std::ranges::all_of(source.entries(), [&](const TensorEntry& entry) {
      return std::string_view(entry.name).substr(length).starts_with(wrapper.prefix);
    });
  };
  for (;;) {
    const auto* found = std::ranges::find_if(kWrappers, all_have);
    if (found == std::end(kWrappers)) return taken;
    taken.push_back({std::string(found->prefix), std::string(found->rule)});
    length += found->prefix.size();
  }
}

// The shape of an expression whose rows have been chosen; its matrices keep equally many each.
void set_row_count(graph::TensorExpr& expr) {
  if (expr.shape.size() < expr.row_rank) return;
  int64_t count = 0;
  for (const graph::RowRun& run : expr.rows) count += run.count;
  for (size_t i = 0; i + 1 < expr.row_rank; ++i) count /= expr.shape[i];
  expr.shape[expr.row_rank - 1] = count;
}

class Mapper {
 public:
  Mapper(const TensorSource& source, const ModelConfig& config, const std::vector<KeyRule>& rules,
         const MappingOptions& options)
      : source_(source), config_(config), rules_(rules), options_(options) {
    for (const KeyRule& rule : rules_) patterns_.emplace_back(rule.source);
    out.matched.assign(rules.size(), false);
    out.report.prefixes = prefixes_of(source);
    prefix_ = out.report.prefix();
  }

  Status map_entry(size_t index) {
    const TensorEntry& entry = source_.entries()[index];
    const std::string_view key = std::string_view(entry.name).substr(prefix_.size());
    Match match = FERRY_TRY(match_key(key, entry));
    const std::string excess = match.excess;
    const std::string& base = options_.base_prefix;
    if (match.rules.empty() && excess.empty() && !base.empty()) {
      match = FERRY_TRY(match_key(base + std::string(key), entry));
      if (!match.rules.empty()) {
        ++out.report.without_base_prefix;
      } else if (key.starts_with(base)) {
        match = FERRY_TRY(match_key(key.substr(base.size()), entry));
      }
    }
    const std::vector<const KeyRule*>& matching = match.rules;
    const KeyNumbers& found = match.numbers;
    if (matching.empty()) {
      unmapped(entry, excess);
    } else if (matching[0]->kind == KeyRule::Kind::kDrop) {
      out.report.entries.push_back(
          {entry.stored_name(), {}, matching[0]->name, matching[0]->reason});
    } else if (matching[0]->kind == KeyRule::Kind::kStack) {
      add_to_stack(*matching[0], index, found);
    } else if (const KeyRule* rule = choose(matching, entry)) {
      apply(*rule, index, found);
    } else {
      for (const RuleTarget& target : matching[0]->targets) {
        out.spoiled.insert(fill_in(target.name, found));
      }
    }
    return {};
  }

  // To be called after the last entry.
  void finish_stacks() {
    for (Stack& stack : stacks_) finish(stack);
  }

  void tie(const TieRule& tie) {
    const graph::Weight* target = out.weights.find(tie.target);
    const graph::Weight* same = out.weights.find(tie.same_as);
    if ((target == nullptr) == (same == nullptr)) return;  // none: reported as missing by itself
    const std::string& name = target == nullptr ? tie.target : tie.same_as;
    const std::string& stored = target == nullptr ? tie.same_as : tie.target;
    graph::TensorExpr expr = (target == nullptr ? same : target)->expr;
    (void)out.weights.add({.name = name, .expr = std::move(expr), .rule = tie.name});
    out.report.entries.push_back({"", {name}, tie.name, "the same as " + stored});
  }

  MappedKeys out;

 private:
  struct Match {
    std::vector<const KeyRule*> rules;  // several where a key comes in several layouts
    KeyNumbers numbers;
    std::string excess;  // why a key that looks known is not
  };

  Result<Match> match_key(std::string_view key, const TensorEntry& entry) {
    Match match;
    for (size_t r = 0; r < rules_.size(); ++r) {
      std::optional<KeyNumbers> matched = patterns_[r].match(key);
      if (matched) match.excess = excess_of(*matched);
      if (!matched || !match.excess.empty()) continue;
      if (!match.rules.empty() && !(match.rules[0]->layout && rules_[r].layout)) {
        return fail(ErrorCode::kInternal,
                    fmt::format("key {} matches the rules '{}' and '{}'",
                                quoted(entry.stored_name()), match.rules[0]->name, rules_[r].name));
      }
      match.rules.push_back(&rules_[r]);
      out.matched[r] = true;
      match.numbers = std::move(*matched);
    }
    return match;
  }

  void problem(KeyProblem::Kind kind, const TensorEntry& entry, std::string message) {
    out.problems.push_back({kind, entry.stored_name(), std::move(message)});
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
      if (!glob_match(glob, entry.stored_name())) continue;
      out.report.allowed.push_back(entry.stored_name());
      out.report.entries.push_back(
          {entry.stored_name(), {}, "allowed unmapped", "--allow-unmapped " + glob});
      return;
    }
    std::string message = fmt::format("unmapped: {} {} {}", quoted(entry.stored_name()),
                                      dtype_name(entry.dtype), to_string(entry.shape));
    if (!excess.empty()) {
      message += fmt::format(" ({})", excess);
    } else if (suggestions_++ < kMaxSuggestions) {
      const std::string near = nearest_key(rules_, options_, entry.stored_name());
      if (!near.empty()) message += fmt::format(" (nearest known key: {})", quoted(near));
    }
    problem(KeyProblem::Kind::kUnmapped, entry, std::move(message));
  }

  // Whether the entry by itself is what the rule takes; a problem if not.
  bool fits(const KeyRule& rule, const TensorEntry& entry) {
    if (!is_castable(entry.dtype)) {
      problem(KeyProblem::Kind::kDType, entry,
              fmt::format("dtype: {} is {}, expected f32, f16 or bf16", quoted(entry.stored_name()),
                          dtype_name(entry.dtype)));
      return false;
    }
    if (rule.expected_shape && entry.shape != rule.expected_shape(config_)) {
      problem(KeyProblem::Kind::kShape, entry,
              fmt::format("shape: {} {}, the config wants {}", quoted(entry.stored_name()),
                          to_string(entry.shape), to_string(rule.expected_shape(config_))));
      return false;
    }
    const int64_t rows = entry.shape.empty() ? 1 : entry.shape[0];
    if (!rule.expected_rows || rows == rule.expected_rows(config_)) return true;
    problem(KeyProblem::Kind::kShape, entry,
            fmt::format("shape: {} {} has {} rows, the config wants {} for '{}'",
                        quoted(entry.stored_name()), to_string(entry.shape), rows,
                        rule.expected_rows(config_), rule.name));
    return false;
  }

  // The rule of the layout that the entry has. nullptr, with a problem, where the entry fits none
  // of them or nothing says which it is. Rules of one key differ in nothing but their rows.
  const KeyRule* choose(const std::vector<const KeyRule*>& rules, const TensorEntry& entry) {
    const KeyRule& first = *rules[0];
    if (rules.size() > 1) out.report.packed_keys = true;
    if (!fits(first, entry)) return nullptr;
    if (rules.size() == 1) return &first;
    const auto wanted = std::ranges::find_if(rules, [&](const KeyRule* rule) {
      return options_.packed_layout ? rule->layout == options_.packed_layout : rule->own_layout;
    });
    if (wanted != rules.end()) return *wanted;
    if (all_same_rows(rules)) return &first;
    ambiguous(rules, entry);
    return nullptr;
  }

  // One key-value head, for instance: then there is nothing to choose.
  bool all_same_rows(const std::vector<const KeyRule*>& rules) const {
    for (const KeyRule* rule : rules) {
      for (size_t t = 0; t < rule->targets.size(); ++t) {
        if (rule->targets[t].rows(config_) != rules[0]->targets[t].rows(config_)) return false;
      }
    }
    return true;
  }

  void ambiguous(const std::vector<const KeyRule*>& rules, const TensorEntry& entry) {
    std::string ways;
    for (const KeyRule* rule : rules) {
      ways += fmt::format("{}'{}' (--packed-layout {})", ways.empty() ? "" : " or ", rule->name,
                          packed_layout_name(*rule->layout));
    }
    problem(KeyProblem::Kind::kAmbiguous, entry,
            fmt::format("ambiguous: {} {} may be {}", quoted(entry.stored_name()),
                        to_string(entry.shape), ways));
  }

  void apply(const KeyRule& rule, size_t index, const KeyNumbers& numbers) {
    const TensorEntry& entry = source_.entries()[index];
    MappedEntry mapped{entry.stored_name(), {}, rule.name, rule.reason};
    for (const RuleTarget& target : rule.targets) {
      std::string name = fill_in(target.name, numbers);
      graph::TensorExpr expr = graph::expr_of_entry(source_, index);
      expr.steps = rule.steps;
      if (target.rows) {
        expr.rows = target.rows(config_);
        for (graph::RowRun& run : expr.rows) run.entry = index;
        expr.row_rank = target.row_rank;
        set_row_count(expr);
      }
      if (const auto [other, fresh] = made_by_.emplace(name, entry.stored_name()); !fresh) {
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
            fmt::format("duplicate: {} and {} both make {}", quoted(other),
                        quoted(entry.stored_name()), target));
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
      if (const auto [other, first] = made_by_.emplace(target, entry.stored_name()); !first) {
        stack_of_.erase(known);
        return duplicate(entry, other->second, target);
      }
      stacks_.push_back({&rule, numbers, target, {}});
    }
    Stack& stack = stacks_[known->second];
    const auto [part, added] = stack.parts.emplace(std::stoll(numbers.expert), index);
    if (!added) return duplicate(entry, source_.entries()[part->second].stored_name(), target);
    const TensorEntry& first = source_.entries()[stack.parts.begin()->second];
    if (fits(rule, entry) && is_castable(first.dtype) && entry.dtype != first.dtype) {
      problem(KeyProblem::Kind::kDType, entry,
              fmt::format("dtype: {} is {}, but {} is {}", quoted(entry.stored_name()),
                          dtype_name(entry.dtype), quoted(first.stored_name()),
                          dtype_name(first.dtype)));
    }
    out.report.entries.push_back({entry.stored_name(), {target}, rule.name, rule.reason});
  }

  // The weight is there even if parts of it are missing: the problem says which.
  void finish(Stack& stack) {
    const Shape part = stack.rule->expected_shape(config_);
    graph::TensorExpr expr;
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
        out.problems.push_back(
            {KeyProblem::Kind::kMissing, key,
             fmt::format("missing: {} {} (for {})", quoted(key), to_string(part), stack.target)});
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
  std::string prefix_;                          // of all keys, not seen by rules
  std::map<std::string, std::string> made_by_;  // target -> source key
  std::vector<Stack> stacks_;                   // as their first parts come
  std::map<std::string, size_t> stack_of_;      // by target
  size_t suggestions_ = 0;
};

// How much rule `r` has in common with one that keys of the checkpoint match: the length of the
// names, up to a dot, that both begin with; more if it is such a rule itself.
size_t likeness_to_matched(const std::vector<KeyRule>& rules, size_t r,
                           const std::vector<bool>& matched) {
  const std::string& source = rules[r].source;
  if (r < matched.size() && matched[r]) return source.size() + 1;
  size_t longest = 0;
  for (size_t m = 0; m < matched.size() && m < rules.size(); ++m) {
    if (!matched[m] || rules[m].kind == KeyRule::Kind::kDrop) continue;
    const auto differs = std::ranges::mismatch(source, rules[m].source).in1;
    const std::string_view shared(source.begin(), differs);
    longest = std::max(longest, shared.rfind('.') + 1);  // npos + 1 is 0
  }
  return longest;
}

}  // namespace

std::string MappingReport::prefix() const {
  std::string all;
  for (const TakenPrefix& taken : prefixes) all += taken.prefix;
  return all;
}

Result<MappedKeys> map_keys(const TensorSource& source, const ModelConfig& config,
                            const std::vector<KeyRule>& rules, const std::vector<TieRule>& ties,
                            const MappingOptions& options) {
  std::vector<KeyRule> all = rules;
  all.insert(all.end(), options.format_rules.begin(), options.format_rules.end());
  Mapper mapper(source, config, all, options);
  for (size_t i = 0; i < source.entries().size(); ++i) FERRY_RETURN_IF_ERROR(mapper.map_entry(i));
  mapper.finish_stacks();
  for (const TieRule& tie : ties) mapper.tie(tie);
  return std::move(mapper.out);
}

std::string expected_key(const std::vector<KeyRule>& rules, const std::string& target,
                         const std::vector<bool>& matched) {
  std::string best;
  size_t best_likeness = 0;
  for (size_t r = 0; r < rules.size(); ++r) {
    for (const RuleTarget& made : rules[r].targets) {
      const std::optional<KeyNumbers> numbers = KeyPattern(made.name).match(target);
      if (!numbers) continue;
      const size_t likeness = likeness_to_matched(rules, r, matched);
      if (!best.empty() && likeness <= best_likeness) continue;
      best = fill_in(rules[r].source, *numbers);
      best_likeness = likeness;
    }
  }
  return best;
}

}  // namespace ferry::converters
