// Thresholds: what a run of a bundle must not miss, read from a JSON file. Every field has its unit
// in its name, and its target where the figure depends on one. docs/running.md lists them.
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

struct Quantity;  // a number that is measured

// Whether one field is met.
struct Judgement {
  std::string field;  // "max_bytes.total"
  bool met = false;
  // A number meets its limit up to it, or, if `at_least`, from it on.
  double measured = 0, limit = 0;
  bool at_least = false;
  std::string_view unit = {};  // empty: this is about `text`
  std::string text = {};       // must occur in what was generated
};

class Thresholds {
 public:
  // kBadInput for unknown fields, wrong types, numbers below 0, and where there is nothing to
  // judge.
  static Result<Thresholds> load(const std::string& path);
  // `name` begins the messages.
  static Result<Thresholds> parse(std::string_view text, const std::string& name);

  bool needs_text() const { return !texts_.empty(); }
  // kBadInput for max_bytes of a component that the bundle does not have.
  Status check_components(const packer::Manifest& manifest) const;

  // One for each field, and for each text, in a fixed order. Times are compared as measured, not in
  // whole milliseconds.
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
