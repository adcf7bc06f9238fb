// Result<T> and errors. They are public, and the same for callers of the library and inside of it.
#pragma once

#include "include/ferry/result.h"

namespace ferry {

// The exit code of `ferry verify` where nothing that was compared differs, but nothing was proved.
inline constexpr int kNotProvedExit = 7;

}  // namespace ferry
