// Proves the modes of a static bundle against each other: whatever way tokens go through its
// methods, the same must come out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/parity_report.h"
#include "proof/reference_recorder.h"
#include "runner/decoder.h"

namespace ferry::proof {

struct ModeProof {
  runner::DecodeMode mode = runner::DecodeMode::kHybrid;
  std::string absent;  // why the bundle does not have the mode; otherwise empty
  // Compared with mode kv, which records logits, probes, caches and the continuation. Held to the
  // noise of f32. Where activations are rounded, the last bit of a sum decides how: then modes are
  // held to what rounding loses in this model.
  std::optional<ParityReport> report;
  // For a bundle that rounds activations: both modes with activations in f32, held to the noise of
  // f32.
  std::optional<ParityReport> in_f32;
  runner::LookaheadCounts lookahead;  // of all prompts

  bool parity() const { return (!report || report->parity) && (!in_f32 || in_f32->parity); }
};

// Hybrid and lookahead, each against kv. Continuations of `prompts` say how long those should be
// that mode kv chooses, and are not compared.
Result<std::vector<ModeProof>> prove_modes(const packer::Bundle& bundle,
                                           const std::vector<RecordedPrompt>& prompts,
                                           const ParityBounds& bounds,
                                           std::optional<uint64_t> memory, ThreadPool& pool,
                                           bool details = false);

// Options of `mode` for this bundle. Lookahead: the default, or guesses that fit into the calls of
// kv_forward where those are shorter. Loading a decoder with them refuses modes that are not there.
runner::DecodeOptions decode_options_of(const packer::Manifest& manifest, runner::DecodeMode mode);

}  // namespace ferry::proof
