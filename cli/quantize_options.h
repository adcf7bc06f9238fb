// The options of `convert` that quantise weights, from text to values.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/result.h"
#include "graph/passes/quantize_weights.h"

namespace ferry::cli {

struct QuantizeTexts {
  std::string linears = "none";     // --quantize
  std::string embeddings = "none";  // --quantize-embedding
  std::vector<std::string> rules;   // --quantize-rule
  std::string method;               // --quantize-method
};

// Adds the four options to `verb`; `texts` must outlive it.
void add_quantize_options(Verb& verb, QuantizeTexts& texts);

// kUsage, with the option, for what is no such value, and for a method without anything to
// quantise by it.
Result<graph::QuantizeOptions> parse_quantize_options(const QuantizeTexts& texts);

}  // namespace ferry::cli
