#include "audit/budget.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "audit/component.h"
#include "audit/findings.h"
#include "audit/views.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::audit {
namespace {

constexpr uint64_t kMaxBudgetBytes = uint64_t{1} << 20;
constexpr double kLargestLimit = 4.0e18;

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array<Unit, 11> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"kB", 1e3},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"KiB", 0x1p10},
                                          {"MiB", 0x1p20},
                                          {"GiB", 0x1p30},
                                          {"TiB", 0x1p40}}};

bool is_memory(std::string_view of) {
  return of == "state" || of == "activations" || of == "memory";
}

// Limit::of such as "kind:program", split at its first colon.
struct Selector {
  std::string_view key, pattern;
};
Selector selector_of(std::string_view of) {
  const size_t colon = of.find(':');
  if (colon != std::string_view::npos) return {of.substr(0, colon), of.substr(colon + 1)};
  if (kind_from_name(of)) return {"kind", of};
  return {of, ""};
}

struct Sum {
  uint64_t bytes = 0, matches = 0;
};

Sum sum_of_memory(const Audit& audit, std::string_view of) {
  if (!audit.memory) return {};
  Sum sum{0, audit.memory->methods.size()};
  if (of != "state") sum.bytes += audit.memory->activation_bytes();
  if (of != "activations") sum.bytes += audit.memory->state_bytes();
  return sum;
}

Sum sum_of_findings(const Audit& audit, std::string_view id) {
  Sum sum;
  for (const Finding& finding : audit.findings) {
    if (finding.id != id) continue;
    sum.bytes += finding.bytes;
    sum.matches += finding.items.size();
  }
  return sum;
}

Sum sum_of(const Audit& audit, std::string_view of) {
  if (of == "total") return {audit.bytes(), audit.leaves.size()};
  if (is_memory(of)) return sum_of_memory(audit, of);
  const auto [word, pattern] = selector_of(of);
  if (word == "finding") return sum_of_findings(audit, pattern);
  const Result<std::vector<ViewKey>> key = view_keys(word);
  if (!key) return {};
  Sum sum;
  for (const Leaf& leaf : audit.leaves) {
    if (!glob_match(pattern, key_of(audit, leaf, key->front()))) continue;
    sum.bytes += leaf.bytes;
    ++sum.matches;
  }
  return sum;
}

uint64_t part_of(uint64_t whole, double percent) {
  return static_cast<uint64_t>(std::min(static_cast<double>(whole) * percent / 100, kLargestLimit));
}

// Reads one limit of the short form, such as "padding=0.5%".
Result<Limit> parse_short(std::string_view text) {
  const size_t equals = text.find('=');
  Limit limit;
  limit.of = text.substr(0, equals);
  limit.name = limit.of;
  const auto problem = [&](const std::string& what) {
    return fail_field(ErrorCode::kUsage, "budget", fmt::format(": {}: {}", quoted(text), what));
  };
  if (equals == std::string_view::npos) return problem("expected PART=SIZE");
  if (const std::string what = problem_with(limit.of); !what.empty()) return problem(what);
  if (!set_limit(limit, text.substr(equals + 1))) {
    return problem("the size is a number with or without a unit (MB, MiB, ...), or a percentage");
  }
  if (limit.percent && is_memory(limit.of)) return problem("memory has no percentage of the files");
  return limit;
}

using nlohmann::json;

class BudgetParser {
 public:
  explicit BudgetParser(const std::string& name) : name_(name) {}

  Result<std::vector<Limit>> parse(const json& document) {
    if (!document.is_object()) return refuse("the document is not an object");
    for (const auto& [field, value] : document.items()) {
      if (field == "limits") continue;
      if (field != "ferry_budget") return refuse(fmt::format("unknown field {}", quoted(field)));
      if (value != 1) return refuse("ferry_budget is not 1, the only version");
    }
    if (!document.contains("ferry_budget")) return refuse("no field 'ferry_budget'");
    const auto limits = document.find("limits");
    if (limits == document.end() || !limits->is_array() || limits->empty()) {
      return refuse("limits is not a list of one limit or more");
    }
    std::vector<Limit> out;
    for (const json& limit : *limits) {
      where_ = fmt::format("limits[{}]", out.size());
      out.push_back(FERRY_TRY(parse_limit(limit)));
    }
    return out;
  }

 private:
  Failure refuse(const std::string& why) const {
    return bad_input(fmt::format("{}: {}{}", name_, where_.empty() ? "" : where_ + ": ", why));
  }

  Result<Limit> parse_limit(const json& object) {
    if (!object.is_object()) return refuse("not an object");
    Limit limit;
    int sizes = 0;
    for (const auto& [field, value] : object.items()) {
      if (field == "name" || field == "of") {
        if (!value.is_string()) return refuse(field + " is not a text");
        (field == "name" ? limit.name : limit.of) = value.get<std::string>();
        continue;
      }
      FERRY_RETURN_IF_ERROR(take_size(limit, field, value));
      ++sizes;
    }
    if (limit.of.empty()) return refuse("no field 'of'");
    if (const std::string what = problem_with(limit.of); !what.empty()) {
      return refuse(fmt::format("of {}: {}", quoted(limit.of), what));
    }
    if (sizes != 1) {
      return refuse(
          "expected one of max, max_bytes, max_percent, max_growth, max_growth_bytes, "
          "max_growth_percent");
    }
    const bool memory = limit.of == "state" || limit.of == "activations" || limit.of == "memory";
    if (limit.percent && memory && !limit.of_growth) {
      return refuse("memory has no percentage of the files");
    }
    if (limit.name.empty()) limit.name = limit.of;
    return limit;
  }

  Status take_size(Limit& limit, std::string_view field, const json& value) {
    const std::string name(field);
    constexpr std::string_view kGrowth = "max_growth";
    limit.of_growth = field.starts_with(kGrowth);
    field.remove_prefix(std::min(field.size(), limit.of_growth ? kGrowth.size() : 3));
    if (!name.starts_with("max")) return refuse(fmt::format("unknown field {}", quoted(name)));
    if (field.empty()) {
      const bool read =
          value.is_string() ? set_limit(limit, value.get<std::string>()) : set_bytes(limit, value);
      return read ? Status()
                  : refuse(name + " is neither bytes, a size with a unit, nor a percentage");
    }
    if (field == "_bytes") {
      return set_bytes(limit, value) ? Status()
                                     : refuse(name + " is not a whole number of 0 or more");
    }
    if (field != "_percent") return refuse(fmt::format("unknown field {}", quoted(name)));
    if (!value.is_number() || !(value.get<double>() >= 0) || !std::isfinite(value.get<double>())) {
      return refuse(name + " is not a number of 0 or more");
    }
    limit.percent = value.get<double>();
    limit.stated = fmt::format("{} %", *limit.percent);
    return {};
  }

  static bool set_bytes(Limit& limit, const json& value) {
    constexpr uint64_t kLargest = uint64_t{1} << 62;
    if (!value.is_number_unsigned() || value.get<uint64_t>() > kLargest) return false;
    limit.bytes = value.get<uint64_t>();
    limit.stated = fmt::format("{} bytes", *limit.bytes);
    return true;
  }

  const std::string& name_;
  std::string where_;
};

}  // namespace

bool set_limit(Limit& limit, std::string_view text) {
  limit.stated = text;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return false;
  std::string_view unit(stop, static_cast<size_t>(end - stop));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (unit == "%") {
    limit.percent = number;
    return true;
  }
  const auto found = std::ranges::find(kUnits, unit, &Unit::name);
  if (found == kUnits.end() || number * found->bytes > kLargestLimit) return false;
  limit.bytes = static_cast<uint64_t>(number * found->bytes);
  return true;
}

std::string problem_with(std::string_view of) {
  if (of == "total" || is_memory(of) || kind_from_name(of)) return {};
  const auto [word, pattern] = selector_of(of);
  const bool exact = pattern.find_first_of("*?") == std::string_view::npos;
  if (word == "finding") return is_finding(pattern) ? "" : "no finding of this name";
  if (pattern.empty() || !view_keys(word)) {
    return "expected total, state, activations, memory, a kind of bytes, or kind:, file:, "
           "component:, layer:, dtype:, rule:, tensor: or finding: and what";
  }
  if (word == "kind" && exact && !kind_from_name(pattern)) return "no kind of this name";
  if (word == "component" && exact && !is_component(pattern)) return "no component of this name";
  return {};
}

Result<std::vector<Limit>> read_budget(const std::string& spec) {
  if (spec.find('=') == std::string::npos) {
    return parse_budget(FERRY_TRY(read_text_file(spec, kMaxBudgetBytes)), printable(spec));
  }
  std::vector<Limit> limits;
  std::string_view rest = spec;
  while (true) {
    const std::string_view text = rest.substr(0, rest.find(','));
    limits.push_back(FERRY_TRY(parse_short(text)));
    if (text.size() == rest.size()) return limits;
    rest.remove_prefix(text.size() + 1);
  }
}

Result<std::vector<LimitResult>> evaluate(const std::vector<Limit>& limits, const Audit& audit,
                                          const Audit* old_audit) {
  std::vector<LimitResult> out;
  for (const Limit& limit : limits) {
    const Sum now = sum_of(audit, limit.of);
    LimitResult result{.limit = limit, .size = static_cast<int64_t>(now.bytes)};
    result.matches = now.matches;
    uint64_t whole = audit.bytes();
    if (limit.of_growth) {
      if (old_audit == nullptr) {
        return fail_field(ErrorCode::kUsage, "budget",
                          fmt::format(": {} limits growth, which needs an audit to compare with",
                                      quoted(limit.name)));
      }
      whole = sum_of(*old_audit, limit.of).bytes;
      result.size -= static_cast<int64_t>(whole);
    }
    result.most = limit.bytes ? *limit.bytes : part_of(whole, *limit.percent);
    out.push_back(std::move(result));
  }
  return out;
}

std::string failure_line(const LimitResult& result) {
  const Limit& limit = result.limit;
  const auto bytes = [](int64_t n) {
    return fmt::format("{} ({} bytes)", human_bytes(static_cast<uint64_t>(n)), n);
  };
  return fmt::format("{}: {}{}, {} over the limit of {}", printable(limit.name),
                     limit.of_growth ? "grew by " : "", bytes(result.size), bytes(result.over()),
                     printable(limit.stated));
}

Result<std::vector<Limit>> parse_budget(std::string_view text, const std::string& name) {
  const json document = FERRY_TRY(parse_json(text, name));
  return BudgetParser(name).parse(document);
}

}  // namespace ferry::audit
