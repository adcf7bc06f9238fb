// The version of this program, as it stands in manifests, reports and signatures.
#pragma once

#include <string_view>

namespace ferry {

// "0.2.0" for the sources of a release; else with the commit behind it, "0.2.0+1a2b3c4d5e6f", or
// with ".modified" behind that where the sources differ from the commit.
std::string_view version();

}  // namespace ferry
