// The keys of one architecture in the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "converters/config/json_fields.h"
#include "core/result.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

// Range of numbers for which no narrower range is known.
constexpr IntRange kGgufCounts = {0, INT32_MAX};
constexpr IntRange kGgufSizes = {1, INT32_MAX};
constexpr FloatRange kGgufReals = {1e-30, 1e15};

struct GgufKeys {
  JsonFields fields;   // all of the metadata
  std::string prefix;  // "llama."

  std::string name(std::string_view key) const { return prefix + std::string(key); }
  Failure unsupported(std::string_view key, std::string_view what) const {
    return fields.error(ErrorCode::kUnsupported, name(key), what);
  }
};

// Returns kUnsupported for a key that changes what a model computes, where Ferry does not support
// that for the architecture, unless the value of the key changes nothing.
Status refuse_unread_keys(const GgufKeys& keys, const GgufArchitecture& architecture);

}  // namespace ferry::converters
