// The version of this program, as it stands in manifests, reports and signatures.
#pragma once

#include <string_view>

namespace ferry {

// "0.2.0"; with the commit behind it where the sources are not those of a release:
// "0.2.0+1a2b3c4d5e6f".
std::string_view version();

}  // namespace ferry
