// Proves the modes of a static bundle against each other: every way of running tokens through the
// methods must give equal outputs.
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
  // The comparison with mode kv: logits, probes, caches and the continuation, held to the noise of
  // f32. If activations are rounded, the last bit of a sum decides how they are rounded. The floors
  // are then what rounding loses in this model.
  std::optional<ParityReport> report;
  // For a bundle that rounds activations: the comparison of both modes with f32 activations, held
  // to the noise of f32.
  std::optional<ParityReport> in_f32;
  runner::LookaheadCounts lookahead;  // sum over all prompts

  bool parity() const { return (!report || report->parity) && (!in_f32 || in_f32->parity); }
};

// Compares the modes hybrid and lookahead with kv. The continuations that mode kv chooses are as
// long as those of `prompts`, whose tokens are not compared.
Result<std::vector<ModeProof>> prove_modes(const packer::Bundle& bundle,
                                           const std::vector<RecordedPrompt>& prompts,
                                           const ParityBounds& bounds,
                                           std::optional<uint64_t> memory, ThreadPool& pool,
                                           bool details = false);

// Returns the options of `mode` for this bundle. The guesses of lookahead are shortened if they do
// not fit into the calls of kv_forward. Loading a decoder with the options fails if the bundle does
// not have the mode.
runner::DecodeOptions decode_options_of(const packer::Manifest& manifest, runner::DecodeMode mode);

}  // namespace ferry::proof
