// flame_page() shows where time went: a chart in which each bar is as wide as its time, and below
// it what it consists of.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::report {

// Time that was spent in `path`, from the whole to the part.
struct FlameRow {
  std::vector<std::string> path;
  double seconds = 0;
  long long calls = 0;
};

// Returns one self-contained HTML file without a script. Its content security policy allows nothing
// but its own style. `path` may hold any text.
std::string flame_page(std::string_view title, std::span<const FlameRow> rows);

// Returns the rows as text, a line each: the path with semicolons, a blank, microseconds. Programs
// that draw flame graphs read it.
std::string folded_stacks(std::span<const FlameRow> rows);

}  // namespace ferry::report
