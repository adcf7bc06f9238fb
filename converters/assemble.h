// assemble: makes a bound model of the keys of a checkpoint and the graph of its family, or lists
// all problems of the keys. Reads metadata only.
#pragma once

#include <vector>

#include "converters/family.h"
#include "converters/keys/key_rule.h"
#include "graph/graph.h"

namespace ferry::converters {

struct Assembled {
  graph::Model model;  // bound if `problems` is empty; else incomplete
  MappingReport report;
  std::vector<KeyProblem> problems;
};

// `config` must have been parsed: its family is the one whose rules and graph are used.
Result<Assembled> assemble(const TensorSource& source, const KeyedTensors& keyed,
                           const ModelConfig& config, const BuildOptions& build,
                           const MappingOptions& mapping);

// The problems as one error: a summary line, and one detail line for each. kUnsupported if all of
// them are about dtypes, else kBadInput.
Error problems_error(const std::vector<KeyProblem>& problems, const TensorSource& source);

}  // namespace ferry::converters
