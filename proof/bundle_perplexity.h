// Measures the perplexity of a bundle over a text or token ids, and its distance there from another
// bundle or from the checkpoint in f32. docs/perplexity.md states the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/bundle_proof.h"
#include "proof/perplexity.h"

namespace ferry::proof {

struct PerplexityOptions {
  std::string file;
  bool text = false;              // `file` is a text; otherwise it has the format of read_prompts()
  std::optional<int64_t> window;  // tokens; nullopt: the longest sequence that all models can run
  std::optional<int64_t> stride;  // tokens; nullopt: half of the window
  runner::KvBits kv_bits = {};    // of the bundle, not of the other side of the comparison
  QualityLimits limits = {};      // kUsage without another side of the comparison
  Progress progress = {};         // counts predictions
};

struct PerplexityReport {
  WindowOptions windows;
  size_t sequences = 0, window_count = 0;
  int64_t tokens = 0;           // tokens in the file
  bool token_by_token = false;  // the bundle gives only the logits of the last token of a call
  runner::KvBits kv_bits;       // of the options
  Perplexity perplexity;
  std::string other;  // name of the other side of the comparison, or empty
  std::optional<PerplexityComparison> comparison;
  std::vector<CheckedLimit> limits;    // of the options
  std::optional<uint64_t> text_bytes;  // size of the text; nullopt for token ids

  // Returns the NLL of all predictions in bits divided by the bytes of the text. nullopt for token
  // ids, and if windows leave out any token except the first one of the text.
  std::optional<double> bits_per_byte() const;
  bool within_limits() const;
};

// kUsage for windows that do not fit, for tokens outside of the vocabulary, for a text if the
// bundle has no tokenizer, and if no token is predicted. kBadInput if the other bundle holds
// another model. `beside` has the other side of the comparison, the mode of a static bundle, and
// the memory limit.
Result<PerplexityReport> measure_perplexity(const packer::Bundle& bundle,
                                            const PerplexityOptions& options,
                                            const BundleProofOptions& beside, ThreadPool& pool);

}  // namespace ferry::proof
