// Budgets: limits on parts of an artifact, for CI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "audit/audit.h"
#include "core/result.h"

namespace ferry::audit {

struct Limit {
  std::string name;  // for people; `of` where none is given
  // "total", a kind, "state", "activations", "memory", or "kind:", "file:", "component:",
  // "layer:", "dtype:", "rule:", "tensor:" before a pattern with '*' and '?', or "finding:" before
  // the id of a finding.
  std::string of;
  std::string stated;      // the limit as it was written: "900 MB", "0.5%"
  bool of_growth = false;  // over the old artifact, rather than the size
  // One of the two. Percent: of all bytes; of a growth, of the old size.
  std::optional<uint64_t> bytes;
  std::optional<double> percent;
};

// `spec` is the path of a JSON file, or, where it has a '=', the short form
// "total=900MB,padding=0.5%". kUsage for anything else in the short form, kBadInput in the file,
// with the field.
Result<std::vector<Limit>> read_budget(const std::string& spec);

struct LimitResult {
  Limit limit;
  int64_t size = 0;      // bytes
  uint64_t most = 0;     // bytes
  uint64_t matches = 0;  // what was counted: items, methods or findings
  bool passed() const { return size <= static_cast<int64_t>(most); }
  int64_t over() const { return passed() ? 0 : size - static_cast<int64_t>(most); }
};

// All limits, in order. `old_audit` may be nullptr: then kUsage for a limit of growth.
Result<std::vector<LimitResult>> evaluate(const std::vector<Limit>& limits, const Audit& audit,
                                          const Audit* old_audit);

// "download: 912.3 MB, 12.3 MB over 900 MB"
std::string failure_line(const LimitResult& result);

// Limits as people write them. Private to audit/.

// Sets bytes or percent, and `stated`, from "900 MB", "1.5GiB", "4096" or "0.5%". false for
// anything else.
bool set_limit(Limit& limit, std::string_view text);

// Says what is wrong with `of`; empty if nothing is.
std::string problem_with(std::string_view of);

// The JSON form of read_budget(). `name` begins the messages.
Result<std::vector<Limit>> parse_budget(std::string_view json, const std::string& name);

}  // namespace ferry::audit
