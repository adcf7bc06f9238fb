#include "converters/key_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/text.h"

namespace ferry {
namespace {

constexpr std::string_view kLayer = "{i}";
// The nearest known key is looked for only for so many unknown keys, of at most this length.
constexpr size_t kMaxSuggestions = 64;
constexpr size_t kMaxSuggestionLength = 160;

// A source pattern, taken apart once.
struct Pattern {
  std::string_view head, tail;  // around "{i}"
  bool has_layer = false;
  bool open_end = false;  // trailing '*'
};

Pattern compile(std::string_view source) {
  Pattern pattern;
  if (source.ends_with('*')) {
    pattern.open_end = true;
    source.remove_suffix(1);
  }
  const size_t at = source.find(kLayer);
  pattern.has_layer = at != std::string_view::npos;
  pattern.head = source.substr(0, at);
  if (pattern.has_layer) pattern.tail = source.substr(at + kLayer.size());
  return pattern;
}

struct Match {
  std::string layer;  // decimal digits, empty where the pattern has none
};

// Decimal digits without leading zeros at the start of `text`.
std::string_view leading_number(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && text[n] >= '0' && text[n] <= '9') ++n;
  if (n > 1 && text[0] == '0') return {};
  return text.substr(0, n);
}

std::optional<Match> match(const Pattern& pattern, std::string_view key, int64_t num_layers) {
  if (!key.starts_with(pattern.head)) return std::nullopt;
  key.remove_prefix(pattern.head.size());
  Match found;
  if (pattern.has_layer) {
    const std::string_view digits = leading_number(key);
    int64_t layer = -1;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
    if (digits.empty() || parsed.ec != std::errc{} || layer >= num_layers) return std::nullopt;
    found.layer = digits;
    key.remove_prefix(digits.size());
    if (!key.starts_with(pattern.tail)) return std::nullopt;
    key.remove_prefix(pattern.tail.size());
  }
  if (!key.empty() && !pattern.open_end) return std::nullopt;
  return found;
}

std::string substitute(std::string text, const std::string& layer) {
  const size_t at = text.find(kLayer);
  return at == std::string::npos ? text : text.replace(at, kLayer.size(), layer);
}

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
      if (rule.kind != KeyRule::Kind::kMap) continue;
      std::string candidate = substitute(rule.source, layer);
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

bool is_convertible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

int64_t row_count(const std::vector<RowRun>& runs) {
  int64_t count = 0;
  for (const RowRun& run : runs) count += run.count;
  return count;
}

class Mapper {
 public:
  Mapper(const TensorSource& source, const ModelConfig& config, const std::vector<KeyRule>& rules,
         const MappingOptions& options)
      : source_(source), config_(config), rules_(rules), options_(options) {
    for (const KeyRule& rule : rules_) patterns_.push_back(compile(rule.source));
    out.report.prefixes = prefixes_of(source);
    prefix_ = out.report.prefix();
  }

  Status map_entry(size_t index) {
    const TensorEntry& entry = source_.entries()[index];
    const std::string_view key = std::string_view(entry.name).substr(prefix_.size());
    std::vector<const KeyRule*> matching;
    Match found;
    for (size_t r = 0; r < rules_.size(); ++r) {
      std::optional<Match> matched = match(patterns_[r], key, config_.num_layers);
      if (!matched) continue;
      if (!matching.empty() && !(matching[0]->layout && rules_[r].layout)) {
        return fail(ErrorCode::kInternal,
                    fmt::format("key {} matches the rules '{}' and '{}'",
                                quoted(entry.stored_name()), matching[0]->name, rules_[r].name));
      }
      matching.push_back(&rules_[r]);
      found = std::move(*matched);
    }
    if (matching.empty()) {
      unmapped(entry);
    } else if (matching[0]->kind == KeyRule::Kind::kDrop) {
      out.report.entries.push_back(
          {entry.stored_name(), {}, matching[0]->name, matching[0]->reason});
    } else if (const KeyRule* rule = choose(matching, entry)) {
      apply(*rule, index, found.layer);
    } else {
      for (const RuleTarget& target : matching[0]->targets) {
        out.spoiled.insert(substitute(target.name, found.layer));
      }
    }
    return {};
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
    out.problems.push_back({kind, entry.stored_name(), std::move(message)});
  }

  void unmapped(const TensorEntry& entry) {
    for (const std::string& glob : options_.allow_unmapped) {
      if (!glob_match(glob, entry.stored_name())) continue;
      out.report.allowed.push_back(entry.stored_name());
      out.report.entries.push_back(
          {entry.stored_name(), {}, "allowed unmapped", "--allow-unmapped " + glob});
      return;
    }
    std::string message = fmt::format("unmapped: {} {} {}", quoted(entry.stored_name()),
                                      dtype_name(entry.dtype), to_string(entry.shape));
    if (suggestions_++ < kMaxSuggestions) {
      const std::string near = nearest_key(rules_, options_, entry.stored_name());
      if (!near.empty()) message += fmt::format(" (nearest known key: {})", quoted(near));
    }
    problem(KeyProblem::Kind::kUnmapped, entry, std::move(message));
  }

  // The rule of the layout that the entry has. nullptr, with a problem, where the entry fits none
  // of them or nothing says which it is. Rules of one key differ in nothing but their rows.
  const KeyRule* choose(const std::vector<const KeyRule*>& rules, const TensorEntry& entry) {
    const KeyRule& first = *rules[0];
    if (rules.size() > 1) out.report.packed_keys = true;
    if (!is_convertible(entry.dtype)) {
      problem(KeyProblem::Kind::kDType, entry,
              fmt::format("dtype: {} is {}, expected f32, f16 or bf16", quoted(entry.stored_name()),
                          dtype_name(entry.dtype)));
      return nullptr;
    }
    const int64_t rows = entry.shape.empty() ? 1 : entry.shape[0];
    if (first.expected_rows && rows != first.expected_rows(config_)) {
      problem(
          KeyProblem::Kind::kShape, entry,
          fmt::format("shape: {} {} has {} rows, the config wants {} for '{}'", quoted(entry.stored_name()),
                      to_string(entry.shape), rows, first.expected_rows(config_), first.name));
      return nullptr;
    }
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
            fmt::format("ambiguous: {} {} may be {}", quoted(entry.stored_name()), to_string(entry.shape),
                        ways));
  }

  void apply(const KeyRule& rule, size_t index, const std::string& layer) {
    const TensorEntry& entry = source_.entries()[index];
    MappedEntry mapped{entry.stored_name(), {}, rule.name, rule.reason};
    for (const RuleTarget& target : rule.targets) {
      std::string name = substitute(target.name, layer);
      TensorExpr expr = expr_of_entry(source_, index);
      expr.steps = rule.steps;
      if (target.rows) {
        expr.rows = target.rows(config_);
        for (RowRun& run : expr.rows) run.entry = index;
        if (!expr.shape.empty()) expr.shape[0] = row_count(expr.rows);
      }
      if (const auto [other, fresh] = made_by_.emplace(name, entry.stored_name()); !fresh) {
        problem(KeyProblem::Kind::kDuplicate, entry,
                fmt::format("duplicate: {} and {} both make {}", quoted(other->second),
                            quoted(entry.stored_name()), name));
        continue;
      }
      mapped.targets.push_back(name);
      (void)out.weights.add({.name = std::move(name), .expr = std::move(expr), .rule = rule.name});
    }
    out.report.entries.push_back(std::move(mapped));
  }

  const TensorSource& source_;
  const ModelConfig& config_;
  const std::vector<KeyRule>& rules_;
  const MappingOptions& options_;
  std::vector<Pattern> patterns_;
  std::string prefix_;                          // of all keys, not seen by rules
  std::map<std::string, std::string> made_by_;  // target -> source key
  size_t suggestions_ = 0;
};

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
  for (size_t i = 0; i < source.entries().size(); ++i) FERRY_CHECK(mapper.map_entry(i));
  for (const TieRule& tie : ties) mapper.tie(tie);
  return std::move(mapper.out);
}

std::string expected_key(const std::vector<KeyRule>& rules, const std::string& target) {
  for (const KeyRule& rule : rules) {
    for (const RuleTarget& made : rule.targets) {
      const size_t at = made.name.find(kLayer);
      if (at == std::string::npos) {
        if (made.name == target) return rule.source;
        continue;
      }
      const std::string_view head = std::string_view(made.name).substr(0, at);
      const std::string_view tail = std::string_view(made.name).substr(at + kLayer.size());
      if (!target.starts_with(head)) continue;
      const std::string layer(leading_number(std::string_view(target).substr(head.size())));
      if (!layer.empty() && std::string_view(target).substr(head.size() + layer.size()) == tail) {
        return substitute(rule.source, layer);
      }
    }
  }
  return {};
}

}  // namespace ferry
