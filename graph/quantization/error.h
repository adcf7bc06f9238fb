// How far the values that codes and scales stand for are from the weights, added up row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::graph {

class QuantizationError {
 public:
  // Whole groups of `group` values, one after the other, and the values that stand for them.
  void add(std::span<const float> weights, std::span<const float> decoded, size_t group);
  // The rows that follow. Sums of the same parts in the same order have the same bits.
  void add(const QuantizationError& next);

  double squared_error() const { return error_; }
  double squares() const { return squares_; }  // of the weights
  uint64_t groups() const { return groups_; }
  // 10 log10(squares / squared error); infinite where there is no error.
  double sqnr_db() const;
  // The group of the lowest SQNR, the first of several, counted from the first that was added;
  // groups() where no group has an error.
  uint64_t worst_group() const { return worst_.error > 0 ? worst_.index : groups_; }
  double worst_sqnr_db() const;

 private:
  struct Group {
    double error = 0, squares = 1;
    uint64_t index = 0;
    bool worse_than(const Group& other) const;
  };
  double error_ = 0, squares_ = 0;
  uint64_t groups_ = 0;
  Group worst_;
};

}  // namespace ferry::graph
