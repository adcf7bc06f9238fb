// Turns an errno of a system call into an Error. Private to code that makes system calls.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry {

// Returns "PATH: WHAT: reason" with kIo, or with kExists for EEXIST.
Failure os_error(const std::string& path, std::string_view what, int number);

}  // namespace ferry
