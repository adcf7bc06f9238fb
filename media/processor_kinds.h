// The image processors that are known: what their classes are called, the fields that their files
// may have, and their defaults (private to media/).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "media/settings.h"

namespace ferry::media {

// A field of a processor's file, and what applies its value to settings or says what is wrong with
// it.
struct Field {
  std::string_view name;
  Result<void> (*rule)(const nlohmann::json& value, Settings& settings);
};

struct Kind {
  std::string_view name;                         // image_processor_type
  std::span<const std::string_view> processors;  // values of processor_class
  std::span<const Field> fields;                 // beside common_fields(), over which they win
  Settings defaults;
};

// The fields of all kinds. They are applied in the order of the tables.
std::span<const Field> common_fields();

// Returns the kind of an image_processor_type that this processor_class uses, or another of the
// type; nullptr if there is none.
const Kind* find_kind(std::string_view name, std::string_view processor);

// Settles what a list of patches is; `where` begins the messages. kUnsupported for settings with
// which the reference fails, or makes another number of placeholders than of features.
Result<void> settle_patches(Settings& settings, const std::string& where);

}  // namespace ferry::media
