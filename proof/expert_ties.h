// near_ties() lists the experts that an error of the router's input can put in the place of others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry::proof {

// In dB. A row is suspect if its signal-to-noise ratio is lower than that of most rows by this. An
// exchange is right if the ratio gains as much.
inline constexpr double kSuspectDb = 10;
inline constexpr double kGainDb = 6;

struct Exchange {
  double margin = 0;   // of the two scores, over the largest one that the error explains
  size_t slot = 0;     // of the route
  int64_t expert = 0;  // that takes it
};

// `scores`: of all experts for one token. `route`: the experts that it passes through. `input_db`:
// the signal-to-noise ratio of what the scores are computed from. The nearest tie is first.
std::vector<Exchange> near_ties(std::span<const float> scores, std::span<const int64_t> route,
                                double input_db);

double median(std::vector<double> values);  // of at least one value

}  // namespace ferry::proof
