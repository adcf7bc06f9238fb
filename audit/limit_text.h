// Limits as people write them. Private to audit/.
#pragma once

#include <string>
#include <string_view>

#include "audit/budget.h"
#include "core/result.h"

namespace ferry::audit {

// Sets bytes or percent, and `stated`, from "900 MB", "1.5GiB", "4096" or "0.5%". false for
// anything else.
bool set_limit(Limit& limit, std::string_view text);

// What is wrong with `of`; empty if nothing is.
std::string problem_with(std::string_view of);

// The JSON form of read_budget(). `name` begins the messages.
Result<std::vector<Limit>> parse_budget(std::string_view json, const std::string& name);

}  // namespace ferry::audit
