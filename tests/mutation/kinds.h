// The kinds of wrong conversion: a table of names, applicability and changes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/mutation/checkpoint.h"
#include "tests/mutation/facts.h"

namespace ferry::mutation {

struct Kind {
  std::string name;
  // Returns why a model cannot be converted wrongly in this manner; empty where it can.
  std::function<std::string(const Checkpoint&, const Facts&)> excluded;
  // Changes the checkpoint. Empty where a program is changed instead: wrong_programs.cc has a
  // change of the same name, which `ferry_wrong` applies.
  std::function<void(Checkpoint&, const Facts&)> change = {};
  // Returns why no output of the reference can show the error; empty where one does. If none can,
  // only a bundle that differs from its checkpoint in this manner is tested.
  std::function<std::string(const Facts&)> invisible = {};
  // wrong_codes.cc changes codes and scales instead, in quantised bundles only.
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
