// Result<T> and errors. These types are public: callers of the library and its own code use the
// same ones.
#pragma once

#include "include/ferry/result.h"

namespace ferry {

// The exit code of `ferry verify` if nothing that was compared differs but nothing was proved.
inline constexpr int kNotProvedExit = 7;

}  // namespace ferry
