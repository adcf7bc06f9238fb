// dtype_of() applies rule H4 of hdf5.h: the supported element types.
#pragma once

#include "core/dtype.h"
#include "core/result.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

// Returns the dtype of elements of `type`. The error message describes the unsupported type; the
// caller names the file and the dataset. `bfloat16` says that opaque values of two bytes are
// bfloat16.
Result<DType> dtype_of(const ElementType& type, bool bfloat16);

}  // namespace ferry::hdf5
