// StridedSource: the tensors of one source presented under other names, in other orders of their
// elements. Adapters of foreign checkpoints (GGUF, Keras) describe each tensor that a family
// expects as a list of strided walks over stored tensors: transposes, permuted heads, packed
// projections and stacked experts are all of that kind. Metadata only, until a tensor is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// A row-major walk over `dims` of one stored tensor: element (i, j, ...) of the piece is element
// offset + i * strides[0] + j * strides[1] + ... of the stored tensor, counted row-major.
struct StridedPiece {
  size_t entry = 0;                    // index into entries() of the inner source
  int64_t offset = 0;                  // elements
  std::vector<int64_t> dims, strides;  // of equal length; strides in elements, not negative
};

// Undoes an adjustment that the foreign format made to the values. Computed in f32, the result is
// f32 whatever is stored; stored values must be f32, f16 or bf16.
enum class ElementChange {
  kNone,
  kSubtractOne,   // x - 1        (norms stored as 1 + w)
  kLogOfNegated,  // log(-x)      (A stored as -exp(A_log))
};

// Its elements are those of the pieces, one piece after the other. The dtype is that of the stored
// tensors where they agree and nothing is changed, and then the bytes are theirs; else f32.
struct StridedTensor {
  std::string name;  // as the family knows it
  Shape shape;       // as many elements as the pieces have
  std::vector<StridedPiece> pieces;
  ElementChange change = ElementChange::kNone;
};

// All of entry `index` of `inner` in its order, to be given another name or shape.
StridedPiece whole_piece(const TensorSource& inner, size_t index);

// Thread-safe once made. Reads are computed in blocks of about kBlockElements, of which the last
// few for each thread are kept, so that no read holds a tensor, and small reads of a transposed
// tensor do not gather it anew each time. A tensor that is a plain run of stored bytes is read
// straight from the inner source. An entry's `original` are the names of the stored tensors it is
// made of; its file and offset are those of the first.
class StridedSource : public TensorSource {
 public:
  static constexpr int64_t kBlockElements = int64_t{1} << 20;

  // Stored tensors that no piece mentions stay as they are, under their own names: nothing of a
  // checkpoint gets lost here. kBadInput where a stored tensor has not the elements that a piece
  // wants, or more than all pieces together use, where its values cannot be changed, and for two
  // entries of one name; kInternal for pieces that make no sense.
  static Result<std::unique_ptr<StridedSource>> make(std::unique_ptr<TensorSource> inner,
                                                     std::vector<StridedTensor> tensors);
};

}  // namespace ferry::converters
