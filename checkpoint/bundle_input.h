// open_bundle_input() opens the weights of a bundle as a checkpoint, so that other formats can be
// made of them.
#pragma once

#include <string>

#include "checkpoint/checkpoint_input.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::checkpoint {

// Whether there is a directory with a manifest at `path`.
bool is_bundle(const std::string& path);

// The tensors have the keys of a Hugging Face checkpoint: those of the checkpoint that the bundle
// was made of, if it was one of Hugging Face, else those of its family. Weights that the bundle
// stores in f32 have the dtype of the checkpoint again where that loses nothing. Every byte of the
// bundle is checked. `config` is that of open_checkpoint_input(). kUnsupported for bundles with
// codes and scales instead of weights.
Result<CheckpointInput> open_bundle_input(const std::string& path, const std::string& config,
                                          ThreadPool& pool);

}  // namespace ferry::checkpoint
