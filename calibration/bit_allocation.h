// allocate_bits() shares a number of bytes among matrices, so that the sum of what their codes cost
// the model is small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ferry::calibration {

// A form that a matrix can have.
struct BitChoice {
  uint64_t bytes = 0;
  double cost = 0;  // in any unit that all matrices share; 0 or more
};

// Returns the index of a choice for each matrix, in order; nullopt if the smallest choices need
// more than `bytes`. Each matrix has at least one choice. From the smallest choices on, matrices
// get more bytes where a byte takes most from the cost, until nothing more fits. The result is the
// best one for its number of bytes, but for the last few bytes. Equal gains go to the matrix that
// is first.
std::optional<std::vector<size_t>> allocate_bits(std::span<const std::vector<BitChoice>> matrices,
                                                 uint64_t bytes);

}  // namespace ferry::calibration
