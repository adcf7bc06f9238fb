#include "core/version.h"

#include "ferry_build_version.h"

namespace ferry {

std::string_view version() { return kBuildVersion; }

}  // namespace ferry
