// Writes the bill of materials of a bundle: CycloneDX 1.7 JSON with a machine-learning model
// (ECMA-424).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "card/facts.h"

namespace ferry::card {

// The model is metadata.component, with its files, licences, ancestors and a model card; the data
// sets that the checkpoint's card names are components. `time`, in seconds since 1970, is the
// timestamp; without it there is none. Equal facts give equal bytes.
std::string ml_bom(const Facts& facts, std::optional<int64_t> time);

// Returns a time such as "2026-03-01T12:00:00Z".
std::string time_text(int64_t time);

}  // namespace ferry::card
