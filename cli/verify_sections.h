// Sections of the output of `ferry verify` and of its parity reports, as text and as JSON: pixel
// values, quantised weights, perplexity.
#pragma once

#include <string>
#include <vector>

#include "core/json_writer.h"
#include "proof/bundle_perplexity.h"
#include "proof/pixel_proof.h"
#include "proof/quantization_error.h"

namespace ferry::cli {

// -- pixel values, with --image

std::string pixel_lines(const std::vector<proof::PixelProof>& proofs);
// The member "pixels", if there are any proofs.
void write_pixels(JsonWriter& json, const std::vector<proof::PixelProof>& proofs);
// A line for each prompt whose pixels differ.
std::vector<std::string> pixel_reasons(const std::vector<proof::PixelProof>& proofs);

// -- quantised weights, with --checkpoint

// A table of layers and one of the weights that lose most; empty where nothing is quantised.
std::string quantization_lines(const std::vector<proof::QuantizationError>& errors);
// The member "quantization": layers, and every weight in the order of the manifest. Nothing where
// nothing is quantised.
void write_quantization(JsonWriter& json, const std::vector<proof::QuantizationError>& errors);

// -- perplexity, with --perplexity

// `path`: the bundle, as given.
std::string to_json(const proof::PerplexityReport& report, const std::string& path);
// The member `perplexity` of an open object.
void write_perplexity(JsonWriter& json, const proof::PerplexityReport& report);
std::string to_text(const proof::PerplexityReport& report);

}  // namespace ferry::cli
