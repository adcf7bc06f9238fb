// Proof of programs: those of a bundle beside the ones that this version of Ferry makes of a
// checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"

namespace ferry::proof {

struct ProgramProof {
  uint64_t programs = 0;               // compared
  std::vector<std::string> different;  // a line for each program or statement that differs
  bool ok() const { return different.empty(); }
};

// `plan` is for the options that the bundle was made with. Programs are compared byte for byte;
// a difference is named by its layer, instruction and operator.
ProgramProof compare_programs(const packer::Bundle& bundle, const packer::BundlePlan& plan);

}  // namespace ferry::proof
