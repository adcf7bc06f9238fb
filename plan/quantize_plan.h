// A quantisation plan says which matrices have another scheme than the others: rules such as
// "layers.0.attention.wv.weight=8da8w". A plan file has a rule in each line; the rest of a line
// from '#' on is a comment.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "graph/passes/quantize_weights.h"

namespace ferry::plan {

// Returns the text of a rule, as --quantize-rule accepts it.
std::string text_of(const graph::QuantizeRule& rule);
// kUsage for anything else than PATTERN=SCHEME.
Result<graph::QuantizeRule> read_rule(const std::string& text);

// kBadInput, with the number of the line, for lines that are no rule, and for files larger than 16
// MiB.
Result<std::vector<graph::QuantizeRule>> read_quantize_plan(const std::string& path);

// Returns rules in few words, by the kinds of matrices and the schemes, in order of their names:
// "attention.wv: 8da8w in layers 0-29", "feed_forward.w2: 8da8w in layers 0, 11".
std::vector<std::string> summary_of(const std::vector<graph::QuantizeRule>& rules);

}  // namespace ferry::plan
