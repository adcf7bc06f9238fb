// assemble: checkpoint keys and a family's graph become a bound model, or a list of all that is in
// the way. Metadata only.
#pragma once

#include <vector>

#include "converters/family.h"
#include "converters/keys/key_rule.h"
#include "graph/graph.h"

namespace ferry::converters {

struct Assembled {
  graph::Model model;  // bound, if there is no problem; else only as far as it went
  MappingReport report;
  std::vector<KeyProblem> problems;
};

Result<Assembled> assemble(const TensorSource& source, const KeyedTensors& keyed,
                           const ModelConfig& config, const FamilySpec& family,
                           const BuildOptions& build, const MappingOptions& mapping);

// The problems as one error: kBadInput (kUnsupported if they are dtypes only), a summary line, one
// detail line per problem.
Error problems_error(const std::vector<KeyProblem>& problems, const TensorSource& source);

}  // namespace ferry::converters
