// The error of whoever is to make something whose name is taken.
#pragma once

#include "core/result.h"

namespace ferry {

// A code of its own beside those of core/result.h, so that a script can tell "made already" from a
// command line that makes no sense. The value is the exit code, as it is of the others.
inline constexpr ErrorCode kExists{6};

}  // namespace ferry
