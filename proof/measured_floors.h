// MeasuredFloors: signal-to-noise floors of the tensors of one model, from noise that was measured
// in the same tensors.
#pragma once

#include <map>
#include <string>

#include "proof/parity_report.h"

namespace ferry::proof {

struct MeasuredFloors {
  double logits = 0;                      // dB; of an encoder: of its last output
  std::map<std::string, double> tensors;  // by name; others have that of the logits

  // Judges all cases of `report` by these floors instead of its bounds; what is within its noise is
  // right too. Tokens are not judged: they follow from the logits.
  void judge(ParityReport& report) const;
};

// Floors for the same comparison in which `noise` was measured. A single row may have kOneRowDb
// more than all rows.
MeasuredFloors floors_of_noise(const ParityReport& noise);

}  // namespace ferry::proof
