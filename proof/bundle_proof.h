// prove_bundle() compares a bundle with a reference, with the checkpoint that it was made from,
// with both, or with another bundle. docs/verifying.md says what each comparison covers.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/checkpoint_proof.h"
#include "proof/compared_files.h"
#include "proof/mode_proof.h"
#include "proof/parity_report.h"
#include "proof/pixel_proof.h"
#include "proof/rounding_proof.h"
#include "runner/decoder.h"

namespace ferry::proof {

// `checkpoint` may be empty. `decode` is set from `mode`.
struct BundleProofOptions : CheckpointOptions {
  std::string reference;            // tensor file of expected outputs; empty: the embedded one
  std::string against;              // path of another bundle of the same model; may be empty
  std::vector<std::string> images;  // see prove_pixels()
  // For a static bundle; nullopt: the default mode, then all modes.
  std::optional<runner::DecodeMode> mode;
};

enum class Verdict {
  kProved,     // everything that was compared agrees, and that proves something
  kNotProved,  // everything that was compared agrees, but a wrong bundle could agree too
  kNoParity,
};

// The results. Exactly one of `direct`, `rounding` and `proof` has a value.
struct Verification {
  std::optional<ParityReport> direct;     // the bundle against a reference, or against `against`
  std::optional<RoundingProof> rounding;  // the bundle in half precision against a reference
  std::optional<CheckpointProof> proof;   // the bundle against a checkpoint
  std::string against;                    // path of the other bundle; empty if there is none
  std::vector<ModeProof> modes;    // results for a static bundle, unless one mode was requested
  std::vector<PixelProof> pixels;  // results of the prompts that have image files
  bool has_reference = false;
  // With an attention sink: the tokens of a sequence up to which outputs can be compared.
  std::optional<int64_t> window_end = {};
  // With BundleProofOptions::details: facts about the reference and the other bundle.
  std::optional<ReferenceFile> reference_file;
  std::optional<packer::Bundle> other;

  bool parity() const { return verdict() == Verdict::kProved; }
  Verdict verdict() const {
    if (!agrees()) return Verdict::kNoParity;
    const bool decided = (!rounding || rounding->decided) && (!proof || proof->decided());
    return decided ? Verdict::kProved : Verdict::kNotProved;
  }
  // Whether everything that was compared is within its bounds.
  bool agrees() const {
    const bool outputs = direct ? direct->parity : rounding ? rounding->parity() : proof->parity();
    return outputs && std::ranges::all_of(modes, &ModeProof::parity) &&
           std::ranges::all_of(pixels, &PixelProof::within);
  }
  // Returns the comparison of the bundle's own outputs; nullptr if there is none.
  const ParityReport* outputs() const {
    if (direct) return &*direct;
    if (rounding) return &rounding->outputs;
    return proof->outputs ? &*proof->outputs : nullptr;
  }
};

// kUsage if there is nothing to compare with (no reference, given or embedded, no checkpoint and no
// other bundle), or for a mode that the bundle does not have. A difference is not an error:
// Verification::parity() reports it.
Result<Verification> prove_bundle(const packer::Bundle& bundle, const BundleProofOptions& options,
                                  ThreadPool& pool);

// kBadInput, with the values of both, unless model type, layers, hidden size and vocabulary are
// equal.
Status check_same_model(const packer::Bundle& bundle, const packer::Bundle& other);

}  // namespace ferry::proof
