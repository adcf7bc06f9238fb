#include "proof/expert_ties.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

namespace ferry::proof {
namespace {

// Two scores nearly tie if they differ by less than this many standard deviations of their error.
constexpr double kTieDeviations = 8;
// The steepest slope of a sigmoid.
constexpr double kSigmoidSlope = 0.25;

using Ids = std::vector<int64_t>;

double deviation(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
}

// Returns the largest difference of two scores that the error explains.
double tie_limit(const RouterScores& scores, double input_db) {
  const double slope = scores.choice.empty() ? 1.0 : kSigmoidSlope;
  return kTieDeviations * deviation(scores.logits) * std::pow(10.0, -input_db / 20) * slope;
}

// Returns the `count` of `ids` with the highest values, in no order.
Ids best_of(Ids ids, size_t count, const std::function<double(int64_t)>& value) {
  count = std::min(count, ids.size());
  std::ranges::nth_element(
      ids, ids.begin() + static_cast<std::ptrdiff_t>(count),
      [&](int64_t a, int64_t b) { return std::pair(-value(a), a) < std::pair(-value(b), b); });
  ids.resize(count);
  return ids;
}

Ids first_ids(int64_t count) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// The choice of one router for one token.
class Choice {
 public:
  Choice(std::span<const float> ranks, const ExpertGroups& groups, size_t count)
      : ranks_(ranks), groups_(groups), count_(count) {}

  Ids best_groups() const {
    return best_of(first_ids(groups_.groups), static_cast<size_t>(groups_.top),
                   [this](int64_t group) { return worth(group); });
  }
  Ids members(const Ids& groups) const {
    Ids ids;
    for (int64_t group : groups) {
      for (int64_t i = 0; i < size(); ++i) ids.push_back(group * size() + i);
    }
    return ids;
  }
  Ids best_experts(const Ids& groups) const { return best_of(members(groups), count_, rank()); }

  double worth(int64_t group) const {
    double sum = 0;
    for (int64_t e : best_of(members({group}), static_cast<size_t>(groups_.best), rank())) {
      sum += rank()(e);
    }
    return sum;
  }
  int64_t size() const { return std::ssize(ranks_) / groups_.groups; }
  std::function<double(int64_t)> rank() const {
    return [this](int64_t e) { return static_cast<double>(ranks_[static_cast<size_t>(e)]); };
  }

 private:
  std::span<const float> ranks_;
  ExpertGroups groups_;
  size_t count_;
};

bool same_set(Ids a, Ids b) {
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

bool explains(const ExpertGroups& groups, const RoutedToken& token) {
  const Choice choice(token.scores.ranks(), groups, token.route.size());
  return same_set(choice.best_experts(choice.best_groups()), token.route);
}

// Returns how many tokens `groups` does not explain. The count may stop beyond `most`.
size_t unexplained(const ExpertGroups& groups, std::span<const RoutedToken> tokens, size_t most) {
  size_t count = 0;
  for (const RoutedToken& token : tokens) {
    count += explains(groups, token) ? 0 : 1;
    if (count > most) break;
  }
  return count;
}

// Returns every grouping with more than one expert per group, in the order of the number of groups.
std::vector<ExpertGroups> possible_groups(int64_t experts, int64_t per_token) {
  std::vector<ExpertGroups> all = {{}};
  for (int64_t groups = 2; groups * 2 <= experts; ++groups) {
    if (experts % groups != 0) continue;
    for (int64_t top = 1; top < groups; ++top) {
      if (top * (experts / groups) < per_token) continue;
      for (const int64_t best : {1, 2}) all.push_back({groups, top, best});
    }
  }
  return all;
}

struct Exchange {
  double margin = 0;
  int64_t leaves = 0, comes = 0;
};

// Returns exchanges of ids in `chosen` for other ids of `all`, the nearest ties first.
std::vector<Exchange> exchanges(const Ids& chosen, const Ids& all, double limit, size_t most,
                                const std::function<double(int64_t)>& value) {
  std::vector<Exchange> out;
  for (int64_t leaves : chosen) {
    for (int64_t comes : all) {
      if (std::ranges::count(chosen, comes) > 0) continue;
      const double margin = std::fabs(value(leaves) - value(comes));
      if (margin <= limit && limit > 0) out.push_back({margin / limit, leaves, comes});
    }
  }
  std::ranges::stable_sort(out, {}, &Exchange::margin);
  if (out.size() > most) out.resize(most);
  return out;
}

Ids exchanged(Ids ids, const Exchange& exchange) {
  std::ranges::replace(ids, exchange.leaves, exchange.comes);
  return ids;
}

// Collects distinct routes of one token.
class Routes {
 public:
  explicit Routes(const Ids& own) { known_.insert(sorted(own)); }
  void add(double margin, const Ids& experts) {
    if (known_.insert(sorted(experts)).second) all_.push_back({margin, experts});
  }
  std::vector<NearRoute> nearest(size_t most) && {
    std::ranges::stable_sort(all_, {}, &NearRoute::margin);
    if (all_.size() > most) all_.resize(most);
    return std::move(all_);
  }

 private:
  static Ids sorted(Ids ids) {
    std::ranges::sort(ids);
    return ids;
  }
  std::set<Ids> known_;
  std::vector<NearRoute> all_;
};

// Adds `base` with one or two experts exchanged for others of `all`.
void add_exchanges(const Ids& base, const std::vector<Exchange>& ties, double margin,
                   Routes& routes) {
  for (size_t i = 0; i < ties.size(); ++i) {
    const Ids one = exchanged(base, ties[i]);
    routes.add(margin + ties[i].margin, one);
    for (size_t j = i + 1; j < ties.size(); ++j) {
      if (ties[j].leaves == ties[i].leaves || ties[j].comes == ties[i].comes) continue;
      routes.add(margin + ties[i].margin + ties[j].margin, exchanged(one, ties[j]));
    }
  }
}

}  // namespace

ExpertGroups groups_behind(std::span<const RoutedToken> tokens) {
  ExpertGroups found;
  if (tokens.empty()) return found;
  size_t least = tokens.size() + 1;
  const RoutedToken& any = tokens.front();
  for (const ExpertGroups& groups :
       possible_groups(std::ssize(any.scores.logits), std::ssize(any.route))) {
    const size_t left = unexplained(groups, tokens, least);
    if (left >= least) continue;
    least = left;
    found = groups;
    if (least == 0) break;
  }
  return found;
}

std::vector<NearRoute> near_routes(const RoutedToken& token, const ExpertGroups& groups,
                                   double input_db, size_t most) {
  const double limit = tie_limit(token.scores, input_db);
  const Choice choice(token.scores.ranks(), groups, token.route.size());
  Routes routes(token.route);
  const auto add_near = [&](const Ids& base, const Ids& chosen_groups, double margin) {
    const Ids all = choice.members(chosen_groups);
    add_exchanges(base, exchanges(base, all, limit, most, choice.rank()), margin, routes);
  };
  const Ids own = choice.best_groups();
  add_near(token.route, own, 0);
  if (!explains(groups, token)) return std::move(routes).nearest(most);
  // The error of a group is at most the sum of the errors of its best experts.
  const double group_limit = limit * static_cast<double>(groups.best);
  const auto worth = [&](int64_t group) { return choice.worth(group); };
  for (const Exchange& tie : exchanges(own, first_ids(groups.groups), group_limit, most, worth)) {
    const Ids others = exchanged(own, tie);
    const Ids base = choice.best_experts(others);
    routes.add(tie.margin, base);
    add_near(base, others, tie.margin);
  }
  return std::move(routes).nearest(most);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace ferry::proof
