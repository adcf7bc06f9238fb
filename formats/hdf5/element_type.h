// Which types of elements are read: rule H4 of hdf5.h.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "core/dtype.h"
#include "formats/hdf5/description.h"

namespace ferry::hdf5 {

// The dtype of such elements, or what they are instead. `bfloat16`: opaque values of two bytes are
// said to be that.
tl::expected<DType, std::string> dtype_of(const ElementType& type, bool bfloat16);

}  // namespace ferry::hdf5
