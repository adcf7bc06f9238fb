// near_routes() lists the routes that an error of a router's input can lead to, where the scores of
// experts or of groups of experts nearly tie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry::proof {

// In dB. A row is suspect if its signal-to-noise ratio is lower than that of most rows by this. An
// exchange is right if the ratio gains as much.
inline constexpr double kSuspectDb = 10;
inline constexpr double kGainDb = 6;

// What a router compares: a token passes through the best experts of the `top` best groups, and a
// group is as good as its `best` best experts together. The members of a group are neighbours.
struct ExpertGroups {
  int64_t groups = 1, top = 1, best = 1;
  bool operator==(const ExpertGroups&) const = default;
};

// The scores of all experts for one token.
struct RouterScores {
  std::span<const float> logits;
  std::span<const float> choice = {};  // sigmoids of logits plus biases, where they decide
  std::span<const float> ranks() const { return choice.empty() ? logits : choice; }
};

// A token, and the experts that its router chose.
struct RoutedToken {
  RouterScores scores;
  std::vector<int64_t> route;
};

// The fewest groups that explain most of the choices. A bundle does not state its groups.
ExpertGroups groups_behind(std::span<const RoutedToken> tokens);

// Another route than the router's.
struct NearRoute {
  // Of the scores that were exchanged, over the largest differences that the error explains; their
  // sum.
  double margin = 0;
  std::vector<int64_t> experts;
};

// `input_db`: the signal-to-noise ratio of what the logits of `token` are computed from. At most
// `most` routes, the nearest ties first: one or two experts are exchanged, and before them perhaps
// a group.
std::vector<NearRoute> near_routes(const RoutedToken& token, const ExpertGroups& groups,
                                   double input_db, size_t most);

double median(std::vector<double> values);  // of at least one value

}  // namespace ferry::proof
