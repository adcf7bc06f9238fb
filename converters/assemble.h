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
  // In the order of components_of(); empty if there are problems.
  std::vector<AssembledComponent> components;
  MappingReport report;
  std::vector<KeyProblem> problems;
  graph::StateDict tied = {};  // the weights under TieRule::same_as, used or not
};

// `config` must come from parse_model_config(): it names the families whose rules and graphs are
// used.
Result<Assembled> assemble(const TensorSource& source, const KeyedTensors& keyed,
                           const ModelConfig& config, const BuildOptions& build,
                           const MappingOptions& mapping);

// Makes one error of the problems: a summary line, and a detail line for each. Its code is
// kUnsupported if all problems are about dtypes, else kBadInput.
Error problems_error(const std::vector<KeyProblem>& problems, const TensorSource& source);

}  // namespace ferry::converters
