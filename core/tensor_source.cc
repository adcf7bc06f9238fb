#include "core/tensor_source.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry {

Status no_codes(const TensorSource& source) {
  return fail(ErrorCode::kInternal,
              fmt::format("{}: codes of a tensor that has none", printable(source.path())));
}

}  // namespace ferry
