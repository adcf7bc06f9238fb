// Reasons why a model cannot be converted wrongly in some manner (Kind::excluded), for several
// files of kinds. The text is empty where it can.
#pragma once

#include <string>

#include "tests/mutation/checkpoint.h"
#include "tests/mutation/facts.h"

namespace ferry::mutation {

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

}  // namespace ferry::mutation
