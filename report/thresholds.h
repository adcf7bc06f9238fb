// Thresholds are limits that a run of a bundle must keep, read from a JSON file. The name of each
// field contains its unit and, if the value depends on one, its target. docs/running.md lists the
// fields.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "packer/manifest.h"
#include "report/generation_stats.h"

namespace ferry::report {

struct Quantity;  // a measured number

// Tells whether one field is met.
struct Judgement {
  std::string field;  // "max_bytes.total"
  bool met = false;
  // A number meets its limit if it is at most the limit or, with `at_least`, at least the limit.
  double measured = 0, limit = 0;
  bool at_least = false;
  std::string_view unit = {};  // unit of the number; empty for a judgement about `text`
  std::string text = {};       // text that the generated text must contain
};

class Thresholds {
 public:
  // kBadInput for unknown fields, wrong types, numbers below 0, and a file without any threshold.
  static Result<Thresholds> load(const std::string& path);
  // `name` begins the messages.
  static Result<Thresholds> parse(std::string_view text, const std::string& name);

  bool needs_text() const { return !texts_.empty(); }
  // kBadInput for max_bytes of a component that the bundle does not have.
  Status check_components(const packer::Manifest& manifest) const;

  // Returns one judgement per field and per text, in a fixed order. Times are compared as measured,
  // not in whole milliseconds.
  std::vector<Judgement> judge(const GenerationStats& stats, const packer::Manifest& manifest,
                               std::string_view generated) const;

 private:
  struct Number {
    const Quantity* quantity;
    double limit;
  };
  class Parser;
  std::string name_;
  std::vector<Number> numbers_;
  std::map<std::string, uint64_t> max_bytes_;  // by role, or "total"
  std::vector<std::string> texts_;
};

}  // namespace ferry::report
