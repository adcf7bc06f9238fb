// What the system refused, as an error. Private to those who make system calls.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace ferry {

// "PATH: WHAT: reason", kIo; kExists for EEXIST.
Failure os_error(const std::string& path, std::string_view what, int number);

}  // namespace ferry
