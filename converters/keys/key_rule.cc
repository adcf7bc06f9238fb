#include "converters/keys/key_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "converters/keys/key_hints.h"
#include "converters/keys/key_pattern.h"
#include "core/text.h"
#include "graph/recipe.h"

namespace ferry::converters {
namespace {

constexpr size_t kMaxSuggestions = 64;      // unknown keys for which a known one is looked for
constexpr size_t kMaxCompared = 1 << 18;    // known keys with which unknown ones are compared
constexpr int64_t kMaxMissingExperts = 64;  // missing experts that are listed for one weight

int64_t rows_of(const Shape& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i < std::max<size_t>(shape.size(), 2) - 1 && i < shape.size(); ++i) {
    rows *= shape[i];
  }
  return rows;
}

class Mapper {
 public:
  Mapper(const TensorSource& source, const KeyedTensors& keyed, const ModelConfig& config,
         const std::vector<KeyRule>& rules, const MappingOptions& options)
      : source_(source), keyed_(keyed), config_(config), rules_(rules), options_(options) {
    for (const KeyRule& rule : rules_) patterns_.emplace_back(rule.source);
    out.matched.assign(rules.size(), false);
    out.report.prefixes = wrapper_prefixes(keyed.tensors);
    prefix_ = out.report.prefix();
  }

  Status map_entry(size_t index) {
    const KeyedTensor& tensor = keyed_.tensors[index];
    if (!tensor.unused.empty()) {
      const std::string name = name_of(tensor);
      report(tensor, {name, {}, "drop " + name, tensor.unused});
      return {};
    }
    const std::string_view key = std::string_view(tensor.key).substr(prefix_.size());
    Match match = FERRY_TRY(match_key(key, tensor));
    const std::string excess = match.excess;
    const std::string& base = options_.base_prefix;
    if (match.rules.empty() && excess.empty() && !base.empty()) {
      match = FERRY_TRY(match_key(base + std::string(key), tensor));
      if (!match.rules.empty()) {
        ++out.report.without_base_prefix;
      } else if (key.starts_with(base)) {
        match = FERRY_TRY(match_key(key.substr(base.size()), tensor));
      }
    }
    const std::vector<const KeyRule*>& matching = match.rules;
    const KeyNumbers& found = match.numbers;
    if (matching.empty()) {
      unmapped(tensor, excess);
    } else if (matching[0]->kind == KeyRule::Kind::kDrop) {
      report(tensor, {name_of(tensor), {}, matching[0]->name, matching[0]->reason});
    } else if (matching[0]->kind == KeyRule::Kind::kStack) {
      add_to_stack(*matching[0], index, found);
    } else if (matching[0]->kind == KeyRule::Kind::kJoin) {
      add_to_join(*matching[0], index, found);
    } else if (const KeyRule* rule = choose(matching, tensor)) {
      apply(*rule, index, found);
    } else {
      for (const RuleTarget& target : matching[0]->targets) {
        out.rejected.insert(fill_in(target.name, found));
      }
    }
    return {};
  }

  // Must be called after the last entry.
  void finish_stacks() {
    for (Stack& stack : stacks_) {
      stack.rule->kind == KeyRule::Kind::kJoin ? finish_join(stack) : finish(stack);
    }
  }

  void tie(const TieRule& tie) {
    const graph::Weight* target = out.weights.find(tie.target);
    const graph::Weight* same = out.weights.find(tie.same_as);
    if ((target == nullptr) == (same == nullptr))
      return;  // if both are missing, that is reported elsewhere
    const std::string& name = target == nullptr ? tie.target : tie.same_as;
    const std::string& stored = target == nullptr ? tie.same_as : tie.target;
    graph::Recipe recipe = (target == nullptr ? same : target)->recipe;
    (void)out.weights.add({.name = name, .recipe = std::move(recipe), .rule = tie.name});
    out.report.entries.push_back({"", {name}, tie.name, "the same as " + stored});
  }

  MappedKeys out;

 private:
  struct Match {
    std::vector<const KeyRule*> rules;  // several if the key exists in several layouts
    KeyNumbers numbers;
    std::string excess;  // why a key that matches a pattern has no rule
  };

  Result<Match> match_key(std::string_view key, const KeyedTensor& tensor) {
    Match match;
    for (size_t r = 0; r < rules_.size(); ++r) {
      std::optional<KeyNumbers> matched = patterns_[r].match(key);
      if (matched) match.excess = excess_of(rules_[r], *matched);
      if (!matched || !match.excess.empty()) continue;
      if (!match.rules.empty() && !are_layouts(*match.rules[0], rules_[r])) {
        return fail(ErrorCode::kInternal,
                    fmt::format("key {} matches the rules '{}' and '{}'", quoted(name_of(tensor)),
                                match.rules[0]->name, rules_[r].name));
      }
      match.rules.push_back(&rules_[r]);
      out.matched[r] = true;
      match.numbers = std::move(*matched);
    }
    return match;
  }

  static bool are_layouts(const KeyRule& a, const KeyRule& b) {
    return (a.layout && b.layout) || (a.by_shape && b.by_shape);
  }

  // Returns the name that the file has for the tensor.
  std::string name_of(const KeyedTensor& tensor) const {
    return source_names(tensor.recipe, source_);
  }

  void problem(KeyProblem::Kind kind, const KeyedTensor& tensor, std::string message) {
    out.problems.push_back({kind, name_of(tensor), std::move(message)});
  }

  // Returns a clause if the layer or expert number of a key is beyond those of the config; else an
  // empty string.
  std::string excess_of(const KeyRule& rule, const KeyNumbers& numbers) const {
    const auto below = [](const std::string& digits, int64_t count) {
      int64_t number = 0;
      const char* end = digits.data() + digits.size();
      return digits.empty() ||
             (std::from_chars(digits.data(), end, number).ec == std::errc{} && number < count);
    };
    const int64_t layers = rule.layers > 0 ? rule.layers : config_.num_layers;
    if (!below(numbers.layer, layers)) return fmt::format("the config has {} layers", layers);
    if (!below(numbers.expert, stacked(rule))) {
      if (rule.stacked > 0) return fmt::format("there are {}", rule.stacked);
      return fmt::format("the config has {} experts", config_.moe.experts);
    }
    return {};
  }

  int64_t stacked(const KeyRule& rule) const {
    return rule.stacked > 0 ? rule.stacked : config_.moe.experts;
  }

  void unmapped(const KeyedTensor& tensor, const std::string& excess) {
    const std::string name = name_of(tensor);
    for (const std::string& glob : options_.allow_unmapped) {
      if (!glob_match(glob, name)) continue;
      out.report.allowed.push_back(name);
      // The manifest records this reason, so its text is part of the bundle's bytes.
      report(tensor, {name, {}, "allowed unmapped", "--allow-unmapped " + glob});
      return;
    }
    const graph::RecipeOutput& made = tensor.recipe.output();
    std::string message = fmt::format("unmapped: {} {} {}", quoted(name), dtype_name(made.dtype),
                                      to_string(made.shape));
    if (!excess.empty()) {
      message += fmt::format(" ({})", excess);
    } else if (suggestions_ < kMaxSuggestions && suggestions_ * rules_.size() < kMaxCompared) {
      ++suggestions_;
      const std::string near = nearest_key(rules_, keyed_.names, name);
      if (!near.empty()) message += fmt::format(" (nearest known key: {})", quoted(near));
    }
    problem(KeyProblem::Kind::kUnmapped, tensor, std::move(message));
  }

  // Whether the tensor has numbers that can be converted. Adds a problem if not.
  bool has_real_dtype(const KeyedTensor& tensor) {
    const DType dtype = tensor.recipe.output().dtype;
    if (is_castable(dtype)) return true;
    problem(KeyProblem::Kind::kDType, tensor,
            fmt::format("dtype: {} is {}, expected f32, f16 or bf16", quoted(name_of(tensor)),
                        dtype_name(dtype)));
    return false;
  }

  // Whether dtype and shape of the tensor are those that the rule expects. Adds a problem if not.
  bool fits(const KeyRule& rule, const KeyedTensor& tensor) {
    const graph::RecipeOutput& made = tensor.recipe.output();
    const std::string name = quoted(name_of(tensor));
    if (!has_real_dtype(tensor)) return false;
    if (rule.expected_shape && made.shape != rule.expected_shape(config_)) {
      problem(KeyProblem::Kind::kShape, tensor,
              fmt::format("shape: {} {}, the config wants {}", name, to_string(made.shape),
                          to_string(rule.expected_shape(config_))));
      return false;
    }
    if (rule.expected_rows && made.shape.size() > 2) {
      problem(KeyProblem::Kind::kShape, tensor,
              fmt::format("shape: {} {} has {} dimensions, '{}' takes rows of a matrix", name,
                          to_string(made.shape), made.shape.size(), rule.name));
      return false;
    }
    const int64_t rows = made.shape.empty() ? 1 : made.shape[0];
    if (!rule.expected_rows || rows == rule.expected_rows(config_)) return true;
    problem(KeyProblem::Kind::kShape, tensor,
            fmt::format("shape: {} {} has {} rows, the config wants {} for '{}'", name,
                        to_string(made.shape), rows, rule.expected_rows(config_), rule.name));
    return false;
  }

  // Returns the rule of the tensor's layout. Returns nullptr and adds a problem if the tensor fits
  // none of the rules or the layout is unknown. The rules differ in their rows only.
  const KeyRule* choose(const std::vector<const KeyRule*>& rules, const KeyedTensor& tensor) {
    const auto made = std::ranges::find_if(rules, [&](const KeyRule* rule) {
      return rule->by_shape && rule->expected_shape(config_) == tensor.recipe.output().shape;
    });
    const KeyRule& first = made == rules.end() ? *rules[0] : **made;
    if (first.by_shape) return fits(first, tensor) ? &first : nullptr;
    if (rules.size() > 1) out.report.packed_keys = true;
    if (!fits(first, tensor)) return nullptr;
    if (rules.size() == 1) return &first;
    const auto wanted = std::ranges::find_if(rules, [&](const KeyRule* rule) {
      return options_.packed_layout ? rule->layout == options_.packed_layout : rule->own_layout;
    });
    if (wanted != rules.end()) return *wanted;
    if (all_same_rows(rules)) return &first;
    ambiguous(rules, tensor);
    return nullptr;
  }

  // Two layouts may be equal, for instance with one key-value head.
  bool all_same_rows(const std::vector<const KeyRule*>& rules) const {
    for (const KeyRule* rule : rules) {
      for (size_t t = 0; t < rule->targets.size(); ++t) {
        if (rule->targets[t].rows(config_) != rules[0]->targets[t].rows(config_)) return false;
      }
    }
    return true;
  }

  void ambiguous(const std::vector<const KeyRule*>& rules, const KeyedTensor& tensor) {
    std::string ways;
    for (const KeyRule* rule : rules) {
      ways += fmt::format("{}'{}' ({})", ways.empty() ? "" : " or ", rule->name,
                          packed_layout_name(*rule->layout));
    }
    problem(KeyProblem::Kind::kAmbiguous, tensor,
            fmt::format("ambiguous: {} {} may be {}; packed_layout says which",
                        quoted(name_of(tensor)), to_string(tensor.recipe.output().shape), ways));
  }

  void apply(const KeyRule& rule, size_t index, const KeyNumbers& numbers) {
    const KeyedTensor& tensor = keyed_.tensors[index];
    MappedEntry mapped{name_of(tensor), {}, rule.name, rule.reason};
    for (const RuleTarget& target : rule.targets) {
      std::string name = fill_in(target.name, numbers);
      graph::Recipe recipe = tensor.recipe;
      if (target.rows && !take_rows(target, rule, tensor, recipe)) continue;
      for (const graph::Step& step : rule.steps) recipe.apply(step);
      if (const auto [other, fresh] = made_by_.emplace(name, mapped.source); !fresh) {
        duplicate(tensor, other->second, name);
        continue;
      }
      mapped.targets.push_back(name);
      (void)out.weights.add(
          {.name = std::move(name), .recipe = std::move(recipe), .rule = rule.name});
    }
    report(tensor, std::move(mapped));
  }

  // A derived tensor has an entry for every stored tensor that it is made of: entry_index().
  void report(const KeyedTensor& tensor, MappedEntry mapped) {
    if (!is_derived(tensor.recipe, source_)) return out.report.entries.push_back(std::move(mapped));
    for (const size_t entry : stored_entries_of(tensor.recipe, source_)) {
      mapped.source = source_.entries()[entry].name;
      out.report.entries.push_back(mapped);
    }
  }

  // Keeps only the rows of the target, in its order. Returns false and adds a problem if the tensor
  // has fewer rows.
  bool take_rows(const RuleTarget& target, const KeyRule& rule, const KeyedTensor& tensor,
                 graph::Recipe& recipe) {
    Shape& shape = recipe.output().shape;
    const std::vector<StridedPiece> order = target.rows(config_);
    const int64_t width = shape.size() < 2 || target.elements ? 1 : shape.back();
    const int64_t rows = rows_of(shape) * (target.elements && shape.size() > 1 ? shape.back() : 1);
    int64_t count = 0;
    for (const StridedPiece& piece : order) {
      if (const auto end = end_of(piece); !end || *end > rows) {
        problem(KeyProblem::Kind::kShape, tensor,
                fmt::format("shape: {} {} has fewer {} than '{}' needs", quoted(name_of(tensor)),
                            to_string(shape), target.elements ? "elements" : "rows", rule.name));
        return false;
      }
      count += piece.count();
    }
    recipe.pieces = select(recipe.pieces, rows_to_elements(order, width));
    if (target.shape) {
      shape = target.shape(config_);
    } else if (!shape.empty() && rows > 0) {
      shape[0] = count / (rows / shape[0]);
    }
    return true;
  }

  void duplicate(const KeyedTensor& tensor, const std::string& other, const std::string& target) {
    problem(KeyProblem::Kind::kDuplicate, tensor,
            fmt::format("duplicate: {} and {} both make {}", quoted(other), quoted(name_of(tensor)),
                        target));
  }

  // -- stacks and joins: one weight of the matrices of all experts, or of the rows of all parts
  struct Stack {
    const KeyRule* rule;
    KeyNumbers numbers;  // number of the layer
    std::string target;
    std::map<int64_t, size_t> parts;  // expert or part -> index in KeyedTensors::tensors
  };

  void add_to_stack(const KeyRule& rule, size_t index, const KeyNumbers& numbers) {
    if (add_part(rule, index, numbers, std::stoll(numbers.expert))) {
      (void)fits(rule, keyed_.tensors[index]);
    }
  }

  void add_to_join(const KeyRule& rule, size_t index, const KeyNumbers& numbers) {
    const auto part = std::ranges::find(rule.parts, rule.source) - rule.parts.begin();
    if (add_part(rule, index, numbers, part)) (void)has_real_dtype(keyed_.tensors[index]);
  }

  // Returns false and adds a problem if another key is the part.
  bool add_part(const KeyRule& rule, size_t index, const KeyNumbers& numbers, int64_t number) {
    const KeyedTensor& tensor = keyed_.tensors[index];
    const std::string name = name_of(tensor);
    const std::string target = fill_in(rule.targets[0].name, numbers);
    const auto [known, fresh] = stack_of_.try_emplace(target, stacks_.size());
    if (fresh) {
      if (const auto [other, first] = made_by_.emplace(target, name); !first) {
        stack_of_.erase(known);
        duplicate(tensor, other->second, target);
        return false;
      }
      stacks_.push_back({&rule, numbers, target, {}});
    }
    Stack& stack = stacks_[known->second];
    const auto [part, added] = stack.parts.emplace(number, index);
    if (!added) {
      duplicate(tensor, name_of(keyed_.tensors[part->second]), target);
      return false;
    }
    const KeyedTensor& first = keyed_.tensors[stack.parts.begin()->second];
    const DType dtype = tensor.recipe.output().dtype, expected = first.recipe.output().dtype;
    if (is_castable(dtype) && is_castable(expected) && dtype != expected) {
      problem(KeyProblem::Kind::kDType, tensor,
              fmt::format("dtype: {} is {}, but {} is {}", quoted(name), dtype_name(dtype),
                          quoted(name_of(first)), dtype_name(expected)));
    }
    report(tensor, {name, {target}, rule.name, rule.reason});
    return true;
  }

  void missing_part(const std::string& key, const std::string& target) {
    out.problems.push_back({KeyProblem::Kind::kMissing, key,
                            fmt::format("missing: {} (for {})", quoted(key), target)});
  }

  // Adds the weight if its parts have the rows that the config wants together.
  void finish_join(Stack& join) {
    const KeyRule& rule = *join.rule;
    const Shape whole = rule.expected_shape(config_);
    graph::Recipe recipe = keyed_.tensors[join.parts.begin()->second].recipe;
    recipe.pieces.clear();
    const auto inner = std::span(whole).subspan(1);
    Shape shape = whole;
    shape[0] = 0;
    for (size_t p = 0; p < rule.parts.size(); ++p) {
      const auto known = join.parts.find(static_cast<int64_t>(p));
      if (known == join.parts.end()) {
        missing_part(fill_in(rule.parts[p], join.numbers), join.target);
        continue;
      }
      const graph::Recipe& part = keyed_.tensors[known->second].recipe;
      const Shape& made = part.output().shape;
      const bool alike = !made.empty() && std::ranges::equal(std::span(made).subspan(1), inner);
      shape[0] += alike ? made[0] : whole[0] + 1;
      std::ranges::copy(part.pieces, std::back_inserter(recipe.pieces));
    }
    if (join.parts.size() == rule.parts.size() && shape != whole) {
      const KeyedTensor& first = keyed_.tensors[join.parts.begin()->second];
      problem(
          KeyProblem::Kind::kShape, first,
          fmt::format("shape: {} {} and the parts behind it are not the {} that the config wants",
                      quoted(name_of(first)), to_string(first.recipe.output().shape),
                      to_string(whole)));
    }
    recipe.output().shape = whole;
    recipe.pieces = folded(recipe.pieces);
    (void)out.weights.add({.name = join.target, .recipe = std::move(recipe), .rule = rule.name});
  }

  // Adds the weight even if parts of it are missing; the problems list them.
  void finish(Stack& stack) {
    const Shape part = stack.rule->expected_shape(config_);
    graph::Recipe recipe = keyed_.tensors[stack.parts.begin()->second].recipe;
    recipe.output().shape = part;
    const int64_t count = stacked(*stack.rule);
    recipe.output().shape.insert(recipe.output().shape.begin(), count);
    recipe.pieces.clear();
    int64_t missing = 0;
    for (int64_t e = 0; e < count; ++e) {
      if (const auto known = stack.parts.find(e); known != stack.parts.end()) {
        std::ranges::copy(keyed_.tensors[known->second].recipe.pieces,
                          std::back_inserter(recipe.pieces));
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
                              fmt::format("missing: {} more parts of {}",
                                          missing - kMaxMissingExperts, stack.target)});
    }
    recipe.pieces = folded(recipe.pieces);
    for (const graph::Step& step : stack.rule->steps) recipe.apply(step);
    (void)out.weights.add(
        {.name = stack.target, .recipe = std::move(recipe), .rule = stack.rule->name});
  }

  const TensorSource& source_;
  const KeyedTensors& keyed_;
  const ModelConfig& config_;
  const std::vector<KeyRule>& rules_;
  const MappingOptions& options_;
  std::vector<KeyPattern> patterns_;
  std::string prefix_;                          // prefix of all keys, removed before matching
  std::map<std::string, std::string> made_by_;  // target -> source key
  std::vector<Stack> stacks_;                   // in the order of their first parts
  std::map<std::string, size_t> stack_of_;      // by target
  size_t suggestions_ = 0;
};

}  // namespace

std::string MappingReport::prefix() const {
  std::string all;
  for (const TakenPrefix& taken : prefixes) all += taken.prefix;
  return all;
}

Result<MappedKeys> map_keys(const TensorSource& source, const KeyedTensors& keyed,
                            const ModelConfig& config, const std::vector<KeyRule>& rules,
                            const std::vector<TieRule>& ties, const MappingOptions& options) {
  Mapper mapper(source, keyed, config, rules, options);
  for (size_t i = 0; i < keyed.tensors.size(); ++i) {
    FERRY_RETURN_IF_ERROR(mapper.map_entry(i));
  }
  mapper.finish_stacks();
  for (const TieRule& tie : ties) mapper.tie(tie);
  return std::move(mapper.out);
}

}  // namespace ferry::converters
