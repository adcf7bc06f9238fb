// assemble: makes bound models of the keys of a checkpoint and the graphs of its components, or
// lists all problems of the keys. Reads metadata only.
#pragma once

#include <string>
#include <vector>

#include "converters/family.h"
#include "converters/keys/key_rule.h"
#include "graph/graph.h"

namespace ferry::converters {

struct AssembledComponent {
  std::string role;
  graph::Model model;
};

struct Assembled {
  std::vector<AssembledComponent> components;  // as components_of(); none if there are problems
  MappingReport report;
  std::vector<KeyProblem> problems;
};

// `config` must have been parsed: its families are those whose rules and graphs are used.
Result<Assembled> assemble(const TensorSource& source, const KeyedTensors& keyed,
                           const ModelConfig& config, const BuildOptions& build,
                           const MappingOptions& mapping);

// The problems as one error: a summary line, and one detail line for each. kUnsupported if all of
// them are about dtypes, else kBadInput.
Error problems_error(const std::vector<KeyProblem>& problems, const TensorSource& source);

}  // namespace ferry::converters
