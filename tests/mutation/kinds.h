// The kinds of wrong conversion: a table of {name, where it applies, what it changes}.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/mutation/checkpoint.h"
#include "tests/mutation/facts.h"

namespace ferry::mutation {

struct Kind {
  std::string name;
  // Why a model cannot be converted wrongly in this manner; empty where it can.
  std::function<std::string(const Checkpoint&, const Facts&)> excluded;
  // Changes the checkpoint. Empty where a program is changed instead: wrong_programs.cc has a
  // change of the same name, and `ferry_wrong` makes it.
  std::function<void(Checkpoint&, const Facts&)> change = {};
  // Why no output that the reference holds can show it; empty where one does. Then only a bundle
  // that differs from its checkpoint in this manner is tested.
  std::function<std::string(const Facts&)> invisible = {};
  // Codes and scales are changed instead, by wrong_codes.cc: in quantised bundles only.
  bool codes = false;
};

// Each table is in the file of its name.
std::vector<Kind> config_kinds();
std::vector<Kind> weight_kinds();
std::vector<Kind> block_kinds();
std::vector<Kind> program_kinds();
std::vector<Kind> coded_kinds();

std::vector<Kind> all_kinds();

}  // namespace ferry::mutation
