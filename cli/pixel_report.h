// What `ferry verify --image` says of pixel values, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "core/json_writer.h"
#include "proof/pixel_proof.h"

namespace ferry::cli {

std::string pixel_lines(const std::vector<proof::PixelProof>& proofs);
// The member "pixels", if there are any proofs.
void write_pixels(JsonWriter& json, const std::vector<proof::PixelProof>& proofs);
// A line for each prompt whose pixels differ.
std::vector<std::string> pixel_reasons(const std::vector<proof::PixelProof>& proofs);

}  // namespace ferry::cli
