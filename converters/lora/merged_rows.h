// MergedRows: the rows of W + scale * B A, or of W + scale * (B A)^T.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/derived_source.h"
#include "graph/recipe.h"

namespace ferry::converters {

class MergedRows final : public FloatDerivation {
 public:
  // `a` and `b` are the entries of A and B.
  MergedRows(graph::Recipe base, size_t a, size_t b, int64_t rank, float scale, bool transposed);

  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override;

 private:
  Status read_plain(const TensorSource& source, int64_t first, std::span<float> left,
                    std::span<float> right) const;
  // Rows of the result are columns of A; its columns are rows of B.
  Status read_transposed(const TensorSource& source, int64_t first, int64_t count,
                         std::span<float> left, std::span<float> right) const;

  graph::Recipe base_;
  size_t a_, b_;
  int64_t rank_;
  float scale_;
  bool transposed_;
};

}  // namespace ferry::converters
