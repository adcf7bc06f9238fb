// prove_bundle() proves a bundle: against a reference, against the checkpoint that it was made of,
// against both, or against another bundle. docs/verifying.md says what each proof covers.
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

// `checkpoint` may be empty; `decode` follows from `mode`.
struct BundleProofOptions : CheckpointOptions {
  std::string reference;  // tensor file with expected outputs; empty: the one in the bundle
  std::string against;    // another bundle of the same model; may be empty
  std::vector<std::string> images;         // as prove_pixels() takes them
  std::optional<runner::DecodeMode> mode;  // of a static bundle; none: its default, then all
};

enum class Verdict {
  kProved,     // everything that was compared agrees, and that proves something
  kNotProved,  // nothing that was compared disagrees, but it could not tell a wrong bundle
  kNoParity,
};

// What was compared. Exactly one of `direct`, `rounding` and `proof` is there.
struct Verification {
  std::optional<ParityReport> direct;     // the bundle against a reference, or `against`
  std::optional<RoundingProof> rounding;  // the same in half precision
  std::optional<CheckpointProof> proof;   // against a checkpoint
  std::string against;                    // the other bundle; empty if there is none
  std::vector<ModeProof> modes;           // of a static bundle, unless one mode was asked for
  std::vector<PixelProof> pixels;         // of the prompts that image files were given for
  bool has_reference = false;
  // With BundleProofOptions::details: what the reference and the other bundle were.
  std::optional<ReferenceFile> reference_file;
  std::optional<packer::Bundle> other;

  bool parity() const { return verdict() == Verdict::kProved; }
  Verdict verdict() const {
    if (!agrees()) return Verdict::kNoParity;
    return rounding && !rounding->decided ? Verdict::kNotProved : Verdict::kProved;
  }
  // Nothing that was compared is beyond its bounds.
  bool agrees() const {
    const bool outputs = direct ? direct->parity : rounding ? rounding->parity() : proof->parity();
    return outputs && std::ranges::all_of(modes, &ModeProof::parity) &&
           std::ranges::all_of(pixels, &PixelProof::within);
  }
  // The bundle's own outputs beside what they were compared with; nullptr if there is none.
  const ParityReport* outputs() const {
    if (direct) return &*direct;
    if (rounding) return &rounding->outputs;
    return proof->outputs ? &*proof->outputs : nullptr;
  }
};

// kUsage if there is nothing to compare with: no reference, neither given nor embedded, no
// checkpoint and no other bundle; or for a mode that the bundle does not have. A bundle that
// differs is not an error: Verification::parity() says so.
Result<Verification> prove_bundle(const packer::Bundle& bundle, const BundleProofOptions& options,
                                  ThreadPool& pool);

// kBadInput, with what each is, unless model type, layers, hidden size and vocabulary are equal.
Status check_same_model(const packer::Bundle& bundle, const packer::Bundle& other);

}  // namespace ferry::proof
