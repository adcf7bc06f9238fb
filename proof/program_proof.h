// Compares the programs of a bundle with those that this version of Ferry makes of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"

namespace ferry::proof {

struct ProgramProof {
  uint64_t programs = 0;               // number of programs compared
  std::vector<std::string> different;  // one line per program or statement that differs
  bool ok() const { return different.empty(); }
};

// `plan` must be made with the options of the bundle. Programs are compared byte for byte; a
// difference is reported with its layer, instruction and operator.
ProgramProof compare_programs(const packer::Bundle& bundle, const packer::BundlePlan& plan);

}  // namespace ferry::proof
