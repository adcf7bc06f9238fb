// What `ferry verify` says, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/checkpoint_proof.h"
#include "runner/parity_report.h"
#include "runner/rounding_proof.h"

namespace ferry::cli {

// What was compared. Exactly one of `direct`, `rounding` and `proof` is there.
struct Verification {
  std::optional<ParityReport> direct;     // the bundle against a reference
  std::optional<RoundingProof> rounding;  // the same in half precision
  std::optional<CheckpointProof> proof;   // against a checkpoint
  bool has_reference = false;
  bool tolerance_given = false;  // by --tolerance

  bool parity() const {
    return direct ? direct->parity : rounding ? rounding->parity() : proof->parity();
  }
  // The bundle's own outputs beside what they were compared with; nullptr if there is none.
  const ParityReport* outputs() const {
    if (direct) return &*direct;
    if (rounding) return &rounding->outputs;
    return proof->outputs ? &*proof->outputs : nullptr;
  }
};

std::string to_json(const Verification& verification);
std::string to_text(const Verification& verification);
// A line for each reason why there is no parity; empty at parity.
std::vector<std::string> reasons(const Verification& verification);

}  // namespace ferry::cli
