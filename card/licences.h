// Ids of licences: those of Hugging Face's model cards, and those of SPDX.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ferry::card {

// Returns the SPDX id of a licence that a model card names, such as "Apache-2.0" for "apache-2.0".
// Upper and lower case are equal, and SPDX ids are accepted as well. nullopt if SPDX has no such
// licence, as for "llama3.1" and "other".
std::optional<std::string_view> spdx_id(std::string_view licence);

// Returns the name of a licence that SPDX does not list, such as "Llama 3.1 Community License". The
// result is the id itself if the name is not known.
std::string licence_name(std::string_view licence);

}  // namespace ferry::card
