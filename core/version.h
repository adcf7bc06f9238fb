// The version of this program, which manifests, reports and signatures state.
#pragma once

#include <string_view>

namespace ferry {

// Returns "0.2.0" for the sources of a release, "0.2.0+1a2b3c4d5e6f" for those of a commit, and
// with ".modified" after that for sources that differ from the commit.
std::string_view version();

}  // namespace ferry
