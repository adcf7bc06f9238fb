// Proof against the checkpoint itself: every weight of a bundle is derived again from the source and
// compared bit for bit, also those that logits cannot see; then the whole is compared with our own
// unsharded f32 path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/context.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/bundle_reader.h"

namespace ferry::cli {

struct TensorProof {
  uint64_t tensors = 0, bytes = 0;     // compared
  std::vector<std::string> different;  // a line for each weight that is not what the source gives
  bool ok() const { return different.empty(); }
};

struct CheckpointProof {
  TensorProof tensors;
  // What the unsharded f32 path computed for the probing prompts, to verify the bundle with.
  std::unique_ptr<TensorSource> reference;
};

// `source` is anything that convert takes, `config` as in convert --config, or empty. The f32 path
// is a bundle in a temporary directory (under TMPDIR), gone when this returns; its size is four
// bytes for every parameter. A checkpoint that does not fit the model at all is an error, weights
// that differ are not.
Result<CheckpointProof> prove_from_checkpoint(Context& context, const Bundle& bundle,
                                              const std::string& source,
                                              const std::string& config);

}  // namespace ferry::cli
