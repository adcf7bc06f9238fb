// Moments are the second moments of the inputs of a linear layer, and their triangular factor. They
// say what an error of a weight costs: with H the mean of x x^T over the inputs x, an error e of a
// row of weights adds e H e^T to the mean squared error of the output.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"

namespace ferry::calibration {

class Moments {
 public:
  explicit Moments(int64_t columns);

  // Adds rows of inputs: [rows, columns], finite. Sums have the order of the calls.
  void add(std::span<const float> inputs, ThreadPool& pool);

  // Returns the bytes that moments of so many columns take, at most.
  static double bytes_for(int64_t columns);

  int64_t columns() const { return columns_; }
  int64_t rows() const { return rows_; }
  // Returns H, [columns, columns] and symmetric, once all inputs are added; zeros without inputs.
  std::vector<float> matrix(ThreadPool& pool);

 private:
  void add_pending(ThreadPool& pool);

  int64_t columns_, rows_ = 0;
  std::vector<float> sums_;     // [columns, columns], of which the lower triangle is computed
  std::vector<float> pending_;  // rows of inputs that sums_ lacks
};

// An order of the columns, and the factor R of H in that order: H = R R^T, with R upper triangular.
// For an error e in that order, the cost is the squared length of e R, and its element q depends on
// e[0..q] only. So codes can be chosen one after the other, each for the least cost of its element
// (the nearest plane method of Babai; GPTQ computes the same, arXiv 2507.18553).
struct Factor {
  std::vector<int32_t> order;  // order[q] is the column that is q-th; large diagonals of H first
  std::vector<float> matrix;   // H in this order, damped, [columns, columns]
  // Row p has R[p][q] / R[q][q] for q > p, and anything for q <= p.
  std::vector<float> ratios;
};
// `matrix` is H, finite. A hundredth of the mean of its diagonal, and more where that does not
// suffice, is added to the diagonal. A column whose inputs are all 0 gets the mean as its diagonal,
// so that it keeps the nearest codes.
Factor factor_of(std::vector<float> matrix, int64_t columns, ThreadPool& pool);

}  // namespace ferry::calibration
