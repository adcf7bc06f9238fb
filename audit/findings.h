// What an audit finds odd: bytes that could be saved, and why. Private to audit/.
#pragma once

#include <string_view>
#include <vector>

#include "audit/audit.h"

namespace ferry::audit {

// Warnings first, then by falling bytes.
std::vector<Finding> find_all(const Audit& audit);

// Whether some finding can have this id.
bool is_finding(std::string_view id);

}  // namespace ferry::audit
