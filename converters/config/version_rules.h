// Keys of a config that versions of transformers read in different ways.
#pragma once

#include <string>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// The versions that the rules compare. Ferry reads configs as the newer one does.
inline constexpr const char* kReferenceVersion = "5.23.0";
inline constexpr const char* kEarlierVersion = "5.12.1";

// Returns the readings that `config` depends on: a row for each key whose reading differs between
// the versions. `outer` is the whole config from which `config` was read, `fields` the part of it
// that describes the text decoder, which may be all of it.
std::vector<VersionReading> version_readings(const JsonFields& outer, const JsonFields& fields,
                                             const ModelConfig& config);

// Returns the reading as a line for a user, which begins with the name of the config.
std::string version_note(const VersionReading& reading, const std::string& config_name);

}  // namespace ferry::converters
