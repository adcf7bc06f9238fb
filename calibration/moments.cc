#include "calibration/moments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "kernels/compute.h"

namespace ferry::calibration {
namespace {

// Inputs are added when there are this many rows.
constexpr int64_t kPendingRows = 1024;
// Sums are computed for this many rows of the matrix at a time.
constexpr int64_t kBlockRows = 128;
// This share of the diagonal's mean is added to the diagonal. It grows tenfold as often as the
// factor does not exist.
constexpr double kDamping = 0.01;
constexpr int kMaxAttempts = 8;

std::vector<float> transposed(const std::vector<float>& rows, int64_t columns) {
  const int64_t count = std::ssize(rows) / columns;
  std::vector<float> out(rows.size());
  for (int64_t begin = 0; begin < columns; begin += 16) {
    const int64_t end = std::min(columns, begin + 16);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = begin; c < end; ++c) {
        out[static_cast<size_t>(c * count + r)] = rows[static_cast<size_t>(r * columns + c)];
      }
    }
  }
  return out;
}

// Computes the lower triangle of the products of `count` vectors of `size` elements with each
// other, a block of rows at a time: add(row, products) gets the products of a vector with those up
// to it and, in a block, after it.
template <class Add>
void for_each_product(const float* vectors, int64_t count, int64_t size, ThreadPool& pool,
                      const Add& add) {
  std::vector<float> products;
  for (int64_t first = 0; first < count; first += kBlockRows) {
    const int64_t rows = std::min(kBlockRows, count - first), columns = first + rows;
    products.resize(static_cast<size_t>(rows * columns));
    kernels::linear(DType::kF32, vectors + first * size, vectors, products.data(), rows, columns,
                    size, pool);
    for (int64_t i = 0; i < rows; ++i) {
      const auto begin = static_cast<size_t>(i * columns);
      add(first + i, std::span(products).subspan(begin, static_cast<size_t>(columns)));
    }
  }
}

// Cholesky computes the lower triangular factor of a symmetric matrix in place, by blocks of
// columns.
class Cholesky {
 public:
  Cholesky(std::vector<float>& matrix, int64_t size, ThreadPool& pool)
      : matrix_(matrix), size_(size), pool_(pool) {}

  // Returns false if the matrix is not positive definite. It is then partly overwritten.
  bool run() {
    for (int64_t begin = 0; begin < size_; begin += kBlockRows) {
      const int64_t end = std::min(size_, begin + kBlockRows);
      if (!factor_diagonal(begin, end)) return false;
      solve_panel(begin, end);
      update_rest(begin, end);
    }
    return true;
  }

 private:
  float* row(int64_t r) { return matrix_.data() + r * size_; }

  // Subtracts the products of what the columns [begin, j) hold of rows i and j.
  float rest_of(int64_t i, int64_t j, int64_t begin) {
    const float *a = row(i), *b = row(j);
    double sum = a[j];
    for (int64_t k = begin; k < j; ++k) sum -= double{a[k]} * double{b[k]};
    return static_cast<float>(sum);
  }
  bool factor_diagonal(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = begin; j < i; ++j) row(i)[j] = rest_of(i, j, begin) / row(j)[j];
      const float square = rest_of(i, i, begin);
      if (!(square > 0) || !std::isfinite(square)) return false;
      row(i)[i] = std::sqrt(square);
    }
    return true;
  }
  void solve_panel(int64_t begin, int64_t end) {
    pool_.parallel_for(static_cast<size_t>(size_ - end), [&](size_t at) {
      const int64_t i = end + static_cast<int64_t>(at);
      for (int64_t j = begin; j < end; ++j) row(i)[j] = rest_of(i, j, begin) / row(j)[j];
    });
  }
  // Subtracts the products of the panel's rows from the lower triangle after it.
  void update_rest(int64_t begin, int64_t end) {
    const int64_t width = end - begin, below = size_ - end;
    panel_.resize(static_cast<size_t>(below * width));
    for (int64_t i = 0; i < below; ++i) {
      std::copy_n(row(end + i) + begin, width, panel_.data() + i * width);
    }
    for_each_product(panel_.data(), below, width, pool_,
                     [&](int64_t i, std::span<const float> products) {
                       float* to = row(end + i) + end;
                       for (size_t j = 0; j < products.size(); ++j) to[j] -= products[j];
                     });
  }

  std::vector<float>& matrix_;
  const int64_t size_;
  ThreadPool& pool_;
  std::vector<float> panel_;
};

}  // namespace

Moments::Moments(int64_t columns)
    : columns_(columns), sums_(static_cast<size_t>(columns * columns)) {}

double Moments::bytes_for(int64_t columns) {
  const auto width = static_cast<double>(columns);
  return (width + static_cast<double>(kPendingRows)) * width * sizeof(float);
}

void Moments::add(std::span<const float> inputs, ThreadPool& pool) {
  while (!inputs.empty()) {
    const auto room = static_cast<size_t>(kPendingRows * columns_) - pending_.size();
    const std::span<const float> part = inputs.first(std::min(room, inputs.size()));
    pending_.insert(pending_.end(), part.begin(), part.end());
    inputs = inputs.subspan(part.size());
    if (part.size() == room) add_pending(pool);
  }
}

void Moments::add_pending(ThreadPool& pool) {
  const int64_t rows = std::ssize(pending_) / columns_;
  if (rows == 0) return;
  const std::vector<float> inputs = transposed(pending_, columns_);
  for_each_product(inputs.data(), columns_, rows, pool,
                   [&](int64_t i, std::span<const float> products) {
                     float* to = sums_.data() + i * columns_;
                     for (size_t j = 0; j < products.size(); ++j) to[j] += products[j];
                   });
  rows_ += rows;
  pending_.clear();
}

std::vector<float> Moments::matrix(ThreadPool& pool) {
  add_pending(pool);
  std::vector<float> out(sums_.size());
  const float factor = rows_ == 0 ? 0.0f : 1.0f / static_cast<float>(rows_);
  for (int64_t i = 0; i < columns_; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const float value = sums_[static_cast<size_t>(i * columns_ + j)] * factor;
      out[static_cast<size_t>(i * columns_ + j)] = value;
      out[static_cast<size_t>(j * columns_ + i)] = value;
    }
  }
  return out;
}

Factor factor_of(std::vector<float> matrix, int64_t columns, ThreadPool& pool) {
  const auto n = static_cast<size_t>(columns);
  Factor factor;
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += double{matrix[i * n + i]};
  const double mean = trace / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) {
    if (!(matrix[i * n + i] > 0)) matrix[i * n + i] = mean > 0 ? static_cast<float>(mean) : 1.0f;
  }
  factor.order.resize(n);
  std::iota(factor.order.begin(), factor.order.end(), 0);
  std::ranges::stable_sort(factor.order, [&](int32_t a, int32_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return matrix[i * n + i] > matrix[j * n + j];
  });
  factor.matrix.resize(n * n);
  pool.parallel_for(n, [&](size_t p) {
    const float* from = matrix.data() + static_cast<size_t>(factor.order[p]) * n;
    float* to = factor.matrix.data() + p * n;
    for (size_t q = 0; q < n; ++q) to[q] = from[factor.order[q]];
  });
  // A lower triangular factor of the matrix with all rows and columns reversed gives R.
  double damping = kDamping * (mean > 0 ? mean : 1.0);
  std::vector<float>& reversed = matrix;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt, damping *= 10) {
    for (size_t i = 0; i < n; ++i) {
      const float* from = factor.matrix.data() + (n - 1 - i) * n;
      for (size_t j = 0; j <= i; ++j) reversed[i * n + j] = from[n - 1 - j];
      reversed[i * n + i] += static_cast<float>(damping);
    }
    if (Cholesky(reversed, columns, pool).run()) break;
    if (attempt + 1 < kMaxAttempts) continue;
    // No damping suffices, so every column is on its own.
    std::ranges::fill(reversed, 0.0f);
    for (size_t i = 0; i < n; ++i) reversed[i * n + i] = 1.0f;
  }
  for (size_t i = 0; i < n; ++i) factor.matrix[i * n + i] += static_cast<float>(damping);
  factor.ratios.resize(n * n);
  pool.parallel_for(n, [&](size_t p) {
    for (size_t q = p + 1; q < n; ++q) {
      const size_t i = n - 1 - p, j = n - 1 - q;
      factor.ratios[p * n + q] = reversed[i * n + j] / reversed[j * n + j];
    }
  });
  return factor;
}

}  // namespace ferry::calibration
