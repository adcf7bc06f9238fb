// PatchGrid computes what a vision tower needs to know of a list of patches whose rows and columns
// are an input (NaFlex): which patches are padding, the positions of all, and the squares of
// patches that become one token. Source: transformers, models/siglip2/modeling_siglip2.py and
// models/lfm2_vl/modeling_lfm2_vl.py.
#pragma once

#include <utility>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Returns pixels f32 [1,P,values of a patch] and their shapes i64 [1,2]: inputs, or of pictures of
// the shape options.picture, whose planes are the input then.
std::pair<ValueId, ValueId> listed_patches(GraphBuilder& b, const VisionConfig& vision,
                                           const BuildOptions& options);

class PatchGrid {
 public:
  // `shapes` is i64 [1,2]: the rows and the columns of the patches, which stand row by row.
  PatchGrid(GraphBuilder& b, const VisionConfig& vision, ValueId shapes);

  // Returns the table of positions [1,patches,hidden_size], resized bilinearly with antialiasing to
  // rows x columns, f32 [1,max_patches,hidden_size]. Padding has that of the first patch.
  ValueId positions_of(ValueId table) const;
  // Returns the row and the column of each patch, whole numbers, f32 [max_patches]. Those of
  // padding are `padding`.
  std::pair<ValueId, ValueId> places(float padding) const;
  // Returns 1 for each patch and 0 for padding, f32 [max_patches].
  ValueId is_patch() const;
  // Returns the additive mask f32 [max_patches,max_patches] with which padding is seen by none.
  ValueId mask() const;
  // Returns the rows of x [1,max_patches,n] with those of each square of patches behind each other.
  // Rows behind the last square repeat the first row.
  ValueId by_squares(ValueId x, int64_t width) const;

 private:
  ValueId indices(int64_t count, Dim dim) const;  // 0, 1, 2, ... in f32
  ValueId floor(ValueId x) const;                 // of numbers that are not negative
  // The quotient and the remainder of whole numbers.
  std::pair<ValueId, ValueId> divide(ValueId x, ValueId by) const;
  // Returns the shares [max_patches,grid] that the rows or columns of the table have in those
  // numbered `index`, of which there are `count`.
  ValueId shares(ValueId index, ValueId count) const;

  GraphBuilder& b_;
  const VisionConfig& v_;
  ValueId rows_, columns_;  // f32 [1]
  ValueId inside_;          // bool [max_patches]
};

}  // namespace ferry::converters
