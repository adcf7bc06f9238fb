// What `ferry verify --checkpoint` says of a quantised bundle, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "core/json_writer.h"
#include "proof/quantization_error.h"

namespace ferry::cli {

// A table of layers and one of the weights that lose most; empty where nothing is quantised.
std::string quantization_lines(const std::vector<proof::QuantizationError>& errors);
// The member "quantization": layers, and every weight in the order of the manifest. Nothing where
// nothing is quantised.
void write_quantization(JsonWriter& json, const std::vector<proof::QuantizationError>& errors);

}  // namespace ferry::cli
