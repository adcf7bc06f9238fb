// Budgets limit the sizes of parts of an artifact, so that CI can refuse one that grew.
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
  std::string name;  // label in messages; equal to `of` where the budget gives none
  // The limited part: "total", a kind of bytes, "state", "activations", "memory"; or "kind:",
  // "file:", "component:", "layer:", "dtype:", "rule:", "tensor:" before a pattern with '*' and
  // '?'; or "finding:" before the id of a finding.
  std::string of;
  std::string stated;      // the limit as it was written: "900 MB", "0.5%"
  bool of_growth = false;  // limits the growth over the old artifact, not the size
  // Exactly one of `bytes` and `percent` is set. `percent` is a share of all bytes, or of the old
  // size if `of_growth`.
  std::optional<uint64_t> bytes;
  std::optional<double> percent;
};

// `spec` is the short form "total=900MB,padding=0.5%" if it contains a '=', else the path of a JSON
// file. Returns kUsage for a malformed short form, and kBadInput, which names the field, for a
// malformed file.
Result<std::vector<Limit>> read_budget(const std::string& spec);

struct LimitResult {
  Limit limit;
  int64_t size = 0;      // bytes of the limited part, or its growth
  uint64_t most = 0;     // the limit in bytes
  uint64_t matches = 0;  // number of items, methods or findings that were added up
  bool passed() const { return size <= static_cast<int64_t>(most); }
  int64_t over() const { return passed() ? 0 : size - static_cast<int64_t>(most); }
};

// Returns the results in the order of `limits`. `old_audit` may be nullptr; a limit of growth is
// kUsage then.
Result<std::vector<LimitResult>> evaluate(const std::vector<Limit>& limits, const Audit& audit,
                                          const Audit* old_audit);

// Returns one line such as "download: 912.3 MB (912300000 bytes), 12.3 MB (12300000 bytes) over the
// limit of 900 MB".
std::string failure_line(const LimitResult& result);

// The functions below are private to audit/.

// Sets Limit::bytes or Limit::percent, and Limit::stated, from a text such as "900 MB", "1.5GiB",
// "4096" or "0.5%". Returns false for another text.
bool set_limit(Limit& limit, std::string_view text);

// Returns the reason why `of` is not a Limit::of; empty if it is one.
std::string problem_with(std::string_view of);

// Reads the JSON form of a budget. Error messages begin with `name`.
Result<std::vector<Limit>> parse_budget(std::string_view json, const std::string& name);

}  // namespace ferry::audit
