#include "kernels/joined.h"

#include "kernels/kernel.h"

namespace ferry::kernels {

Status joined_bmm(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& whole = tensor(call, 1);
  const Tensor& first = tensor(call, 3);
  const JoinedMatrix matrix = {first.dtype,
                               first.data + integer(call, 4) * first.element_bytes(),
                               static_cast<float>(number(call, 5).real),
                               static_cast<int32_t>(integer(call, 6)),
                               boolean(call, 7),
                               static_cast<size_t>(integer(call, 8)),
                               whole.as<float>()};
  const auto size = [](const Tensor& of, int dim) { return static_cast<size_t>(of.size(dim)); };
  joined_bmm_f32({self.as<float>(), matrix, tensor(call, 2).as<float>(), size(self, 0),
                  size(self, 1), size(whole, 2), size(self, 2)},
                 call.pool);
  return {};
}

}  // namespace ferry::kernels
