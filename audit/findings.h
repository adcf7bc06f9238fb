// find_all() lists bytes of an artifact that could be saved, and why. Private to audit/.
#pragma once

#include <string_view>
#include <vector>

#include "audit/audit.h"

namespace ferry::audit {

// Returns warnings first; warnings and others are sorted by descending bytes.
std::vector<Finding> find_all(const Audit& audit);

// Returns whether find_all() can return a finding with this id.
bool is_finding(std::string_view id);

}  // namespace ferry::audit
