// read_filter() reads the matrix of a FullyConnected. This is not a public header.
#pragma once

#include <cstddef>
#include <span>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "kernels/quantized_linear.h"

namespace ferry::runner {

struct Filter {
  int64_t columns = 0;
  const std::byte* f32 = nullptr;  // [rows, columns]; null if `coded` holds the matrix
  kernels::CodedMatrix coded = {};
};

// `constants` are the bytes of Graph::constants. kUnsupported for a value that is no constant or
// has another datatype than f32, qbint4, qcint8, qcint4; kBadInput for shapes and sizes that do not
// fit each other.
Result<Filter> read_filter(const xnnpack::Value& value,
                           std::span<const std::span<const std::byte>> constants);

}  // namespace ferry::runner
