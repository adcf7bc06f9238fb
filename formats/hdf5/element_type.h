// dtype_of() applies rule H4 of hdf5.h: the supported element types.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "core/dtype.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

// The dtype of the elements, or a description of an unsupported type. `bfloat16`: the file says
// that opaque values of two bytes are bfloat16.
tl::expected<DType, std::string> dtype_of(const ElementType& type, bool bfloat16);

}  // namespace ferry::hdf5
