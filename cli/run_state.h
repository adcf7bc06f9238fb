// State files of `ferry run`: the tokens of a sequence that was run, and what they left in the
// caches. Another run of the same programs continues from it. The file is safetensors;
// docs/running.md describes its tensors.
#pragma once

#include "cli/run_options.h"
#include "cli/run_report.h"
#include "core/result.h"
#include "core/sha256.h"
#include "packer/bundle_reader.h"
#include "runner/decoder.h"

namespace ferry::cli {

// Checks --save-state and --load-state before the bundle is opened.
Status check_state(const RunOptions& options);

// The state files of one run. The references must outlive the object.
class StateFiles {
 public:
  StateFiles(const RunOptions& options, const packer::Bundle& bundle)
      : options_(options), bundle_(bundle) {}

  // Continues the sequence of --load-state as far as `g.prompt` begins with it, and sets
  // `g.kept_tokens` to the number of tokens that need not be run; at least one is left. kUsage for
  // the state of another bundle or adapter, and if no part of it can be used: no common beginning,
  // or programs that cannot take back tokens. kBadInput, with the tensor, for a malformed file.
  // kUnsupported for programs whose caches cannot be saved, also with --save-state alone.
  Status load(runner::Decoder& decoder, Generation& g);

  // Writes the file of --save-state, and replaces it in one step. Writes nothing after a signal,
  // when the caches may be ahead of the tokens. Call load() before.
  Status save(const runner::Decoder& decoder, const Generation& g) const;

 private:
  const RunOptions& options_;
  const packer::Bundle& bundle_;
  Digest programs_ = {};  // of programs, weights and adapter
};

}  // namespace ferry::cli
