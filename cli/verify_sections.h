// Writes sections of the output of `ferry verify` and of parity reports, as text and as JSON: pixel
// values, quantised weights and perplexity.
#pragma once

#include <string>
#include <vector>

#include "core/json_writer.h"
#include "proof/bundle_perplexity.h"
#include "proof/pixel_proof.h"
#include "proof/weight_proof.h"

namespace ferry::cli {

// -- pixel values, with --image

std::string pixel_lines(const std::vector<proof::PixelProof>& proofs);
// Writes the member "pixels", if there are proofs.
void write_pixels(JsonWriter& json, const std::vector<proof::PixelProof>& proofs);
// Returns a line for each prompt whose pixel values differ.
std::vector<std::string> pixel_reasons(const std::vector<proof::PixelProof>& proofs);

// -- quantised weights, with --checkpoint

// Returns a table of layers and a table of the weights with the largest errors; empty if nothing is
// quantised.
std::string quantization_lines(const std::vector<proof::QuantizationError>& errors);
// Writes the member "quantization" with layers and all weights in the order of the manifest, if
// anything is quantised.
void write_quantization(JsonWriter& json, const std::vector<proof::QuantizationError>& errors);

// -- perplexity, with --perplexity

// `path` is the bundle as given on the line.
std::string to_json(const proof::PerplexityReport& report, const std::string& path);
// Writes the member `perplexity` of the open object.
void write_perplexity(JsonWriter& json, const proof::PerplexityReport& report);
std::string to_text(const proof::PerplexityReport& report);
// Returns a line for each limit that is not kept.
std::vector<std::string> broken_limits(const proof::PerplexityReport& report);

}  // namespace ferry::cli
