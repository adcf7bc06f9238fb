// dtype_of() applies rule H4 of hdf5.h: the supported element types.
#pragma once

#include "core/dtype.h"
#include "core/result.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

// The dtype of the elements. The message of the error describes the unsupported type alone: the
// file and the dataset are the caller's to name. `bfloat16`: the file says that opaque values of
// two bytes are bfloat16.
Result<DType> dtype_of(const ElementType& type, bool bfloat16);

}  // namespace ferry::hdf5
