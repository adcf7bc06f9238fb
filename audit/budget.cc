#include "audit/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "audit/component.h"
#include "audit/findings.h"
#include "audit/limit_text.h"
#include "audit/views.h"
#include "core/file.h"
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

// "kind:program" is split at the first colon.
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

// A limit of the short form: "padding=0.5%".
Result<Limit> parse_short(std::string_view text) {
  const size_t equals = text.find('=');
  Limit limit;
  limit.of = text.substr(0, equals);
  limit.name = limit.of;
  const auto problem = [&](const std::string& what) {
    return fail(ErrorCode::kUsage, fmt::format("--budget: {}: {}", quoted(text), what));
  };
  if (equals == std::string_view::npos) return problem("expected PART=SIZE");
  if (const std::string what = problem_with(limit.of); !what.empty()) return problem(what);
  if (!set_limit(limit, text.substr(equals + 1))) {
    return problem("the size is a number with or without a unit (MB, MiB, ...), or a percentage");
  }
  if (limit.percent && is_memory(limit.of)) return problem("memory has no percentage of the files");
  return limit;
}

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
        return fail(ErrorCode::kUsage,
                    fmt::format("--budget: {} limits growth, which needs --diff OTHER",
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

}  // namespace ferry::audit
