// Kernels of nodes that no operator of programs has. f32. Not a public header.
#pragma once

#include "kernels/call.h"

namespace ferry::runner {

Status hardswish(const kernels::Call& call);   // self -> out: x * clamp(x / 6 + 1 / 2, 0, 1)
Status leaky_relu(const kernels::Call& call);  // self, slope -> out: x < 0 ? x * slope : x
Status elu(const kernels::Call& call);  // self, alpha -> out: x < 0 ? alpha * (exp(x) - 1) : x
// self, offsets, sizes -> out; a size of 0 is the whole dimension. The part lies inside of self.
Status slice_all(const kernels::Call& call);
// a [..., m, k], b [..., k, n] -> out
Status batch_product(const kernels::Call& call);

}  // namespace ferry::runner
