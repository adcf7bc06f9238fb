#include "runner/profile.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ferry::runner {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Replaces numbers between dots by *, so that the layers of a model have one name.
std::string without_numbers(const std::string& name) {
  std::string result;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const bool number =
        end > begin && std::all_of(name.begin() + static_cast<ptrdiff_t>(begin),
                                   name.begin() + static_cast<ptrdiff_t>(end), is_digit);
    if (begin > 0) result += '.';
    result += number ? "*" : name.substr(begin, end - begin);
    begin = end + 1;
  }
  return result;
}

}  // namespace

void Profile::enter(Steps& steps) const {
  steps.stage_ = stage_;
  if (steps.stages_.size() < stages_.size()) steps.stages_.resize(stages_.size());
  steps.stages_[stage_].resize(steps.ops_.size());
}

void Profile::begin(const std::string& stage) {
  const auto found = std::ranges::find(stages_, stage);
  stage_ = static_cast<size_t>(found - stages_.begin());
  if (found == stages_.end()) stages_.push_back(stage);
  for (Steps& steps : methods_) enter(steps);
}

Profile::Steps& Profile::add_method(std::string method, std::vector<std::string> ops,
                                    std::vector<std::string> weights) {
  Steps& steps = methods_.emplace_back();
  steps.method_ = std::move(method);
  steps.ops_ = std::move(ops);
  steps.weights_ = std::move(weights);
  for (std::string& weight : steps.weights_) weight = without_numbers(weight);
  enter(steps);
  return steps;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> rows;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    std::map<std::tuple<std::string, std::string, std::string>, Row> sums;
    for (const Steps& steps : methods_) {
      if (stage >= steps.stages_.size()) continue;
      const auto& times = steps.stages_[stage];
      for (size_t i = 0; i < times.size(); ++i) {
        if (times[i].calls == 0) continue;
        Row& row = sums[{steps.method_, steps.ops_[i], steps.weights_[i]}];
        row.calls += times[i].calls;
        row.seconds += std::chrono::duration<double>(times[i].time).count();
      }
    }
    const size_t first = rows.size();
    for (auto& [key, row] : sums) {
      row.stage = stages_[stage];
      std::tie(row.method, row.op, row.weight) = key;
      rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin() + static_cast<ptrdiff_t>(first), rows.end(),
                     [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  }
  return rows;
}

}  // namespace ferry::runner
