// Result<T> and errors. These types are public: callers of the library and its own code use the
// same ones.
#pragma once

#include <string>
#include <string_view>

#include "include/ferry/result.h"

namespace ferry {

// The exit code of `ferry verify` if nothing that was compared differs but nothing was proved.
inline constexpr int kNotProvedExit = 7;

// Returns "PATH: WHAT: reason" with kIo, or with kExists for EEXIST.
Failure os_error(const std::string& path, std::string_view what, int number);

}  // namespace ferry
