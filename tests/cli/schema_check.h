// The part of JSON Schema 2020-12 that docs/schemas uses.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ferry {

// Returns the problems of `value` under docs/schemas/FILE: what the schema does not allow, and
// members that it does not describe where it lists others and says nothing of more. Keywords that
// this checker does not know are problems too.
std::vector<std::string> schema_problems(const std::string& file, const nlohmann::json& value);

}  // namespace ferry
