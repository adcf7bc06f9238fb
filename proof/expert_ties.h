// near_routes() lists the routes that an error of a router's input can lead to, because the scores
// of experts or groups of experts nearly tie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry::proof {

// A row is suspect if its signal-to-noise ratio is lower than that of most rows by this many dB. An
// exchange is right if it raises the ratio by as much.
inline constexpr double kSuspectDb = 10;
inline constexpr double kGainDb = 6;

// The selection rule of a router: a token passes through the best experts of the `top` best groups.
// The score of a group is the sum over its `best` best experts. The members of a group are
// neighbours.
struct ExpertGroups {
  int64_t groups = 1, top = 1, best = 1;
  bool operator==(const ExpertGroups&) const = default;
};

// The scores of all experts for one token.
struct RouterScores {
  std::span<const float> logits;
  std::span<const float> choice = {};  // sigmoids of logits plus biases, if they decide the choice
  std::span<const float> ranks() const { return choice.empty() ? logits : choice; }
};

// A token, and the experts that its router chose.
struct RoutedToken {
  RouterScores scores;
  std::vector<int64_t> route;
};

// Returns the fewest groups that explain most of the choices, because a bundle does not state its
// groups.
ExpertGroups groups_behind(std::span<const RoutedToken> tokens);

// A route that differs from the router's choice.
struct NearRoute {
  // The sum over the exchanges of (difference of the scores / largest difference that the error
  // explains).
  double margin = 0;
  std::vector<int64_t> experts;
};

// `input_db` is the signal-to-noise ratio of the input from which the logits of `token` are
// computed. Returns at most `most` routes, the nearest ties first. A route exchanges one or two
// experts, and may exchange a group before.
std::vector<NearRoute> near_routes(const RoutedToken& token, const ExpertGroups& groups,
                                   double input_db, size_t most);

double median(std::vector<double> values);  // requires at least one value

}  // namespace ferry::proof
