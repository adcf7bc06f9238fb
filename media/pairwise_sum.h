// The order in which numpy sums (private to media/).
#pragma once

#include <span>

namespace ferry::media {

// Returns the sum of values that lie side by side, in f32, as numpy adds them: fewer than 8 one by
// one, others in 8 lanes, more than 128 in halves.
float pairwise_sum(std::span<const float> values);

}  // namespace ferry::media
