// Perplexity of a bundle over a text or token ids, and its distance there from another bundle or
// from the checkpoint in f32. docs/perplexity.md states the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/bundle_proof.h"
#include "proof/perplexity_run.h"

namespace ferry::proof {

struct PerplexityOptions {
  std::string file;
  bool text = false;              // `file` is a text; otherwise as read_prompts() takes it
  std::optional<int64_t> window;  // tokens; none: the longest sequence that all can run
  std::optional<int64_t> stride;  // tokens; none: half of the window
  Progress progress = {};         // of the predictions
};

struct PerplexityReport {
  WindowOptions windows;
  size_t sequences = 0, window_count = 0;
  int64_t tokens = 0;           // of the file
  bool token_by_token = false;  // the bundle gives the logits of the last token of a call only
  Perplexity perplexity;
  std::string other;  // what it was compared with; empty if with nothing
  std::optional<PerplexityComparison> comparison;
  std::optional<uint64_t> text_bytes;  // of a text

  // NLL of all predictions in bits, by the bytes of the text; none for token ids, and none where
  // windows leave tokens out that are not the first of the text.
  std::optional<double> bits_per_byte() const;
};

// kUsage for windows that do not fit, tokens outside of the vocabulary, a bundle without tokenizer
// for a text, and where no token is predicted. kBadInput where the other bundle is of another
// model. `beside`: what it is compared with, the mode of a static bundle and memory.
Result<PerplexityReport> measure_perplexity(const packer::Bundle& bundle,
                                            const PerplexityOptions& options,
                                            const BundleProofOptions& beside, ThreadPool& pool);

}  // namespace ferry::proof
