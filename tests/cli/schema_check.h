// The part of JSON Schema 2020-12 that docs/schemas uses.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ferry {

// What `value` has that docs/schemas/FILE does not allow, or does not describe: a member of an
// object whose schema lists others and says nothing of more. Keywords that are not known here are
// problems too.
std::vector<std::string> schema_problems(const std::string& file, const nlohmann::json& value);

}  // namespace ferry
