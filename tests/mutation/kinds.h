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

// Reasons for Kind::excluded that several files use.
inline std::string none(const Checkpoint&, const Facts&) { return ""; }
inline std::string no_attention(const Checkpoint&, const Facts& f) {
  return f.attention.empty() ? "has no attention" : "";
}
inline std::string no_window(const Checkpoint&, const Facts& f) {
  return f.sliding.empty() ? "has no sliding window" : "";
}
inline std::string no_experts(const Checkpoint&, const Facts& f) {
  return f.experts.empty() ? "has no experts" : "";
}
inline std::string no_linear(const Checkpoint&, const Facts& f) {
  return f.linear.empty() ? "has no linear attention" : "";
}

// Each table is in the file of its name.
std::vector<Kind> config_kinds();
std::vector<Kind> weight_kinds();
std::vector<Kind> block_kinds();
std::vector<Kind> program_kinds();
std::vector<Kind> coded_kinds();

std::vector<Kind> all_kinds();

}  // namespace ferry::mutation
