// convert() makes a bundle of a checkpoint: all steps of docs/architecture.md in one function.
#pragma once

#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"

namespace ferry::conversion {

// Plans a conversion with plan::plan_conversion(). If options.reference names a file to embed, this
// function also checks the file: a reference of another model is an error.
Result<plan::Conversion> prepare(const plan::ConvertOptions& options, ThreadPool* pool = nullptr);

// Calibrates where the options need it, plans and writes, for callers that report neither the plan
// nor progress. Keys that do not fit the model are an error. `overwrite` replaces an existing
// bundle at `directory`.
Result<packer::WrittenBundle> convert(const plan::ConvertOptions& options,
                                      const std::string& directory, bool overwrite,
                                      ThreadPool& pool);
Result<packer::WrittenBundle> convert(const plan::ConvertOptions& options,
                                      const packer::BundleTarget& target, ThreadPool& pool);

// How the program of a bundle in memory multiplies quantised matrices of a GGUF file.
enum class GgufMatrices {
  kFloats,  // as f32, for proofs
  kBlocks,  // in the file's blocks, with activations rounded to 8 bits (kernels/block_linear.h)
};

// A GGUF file, and the paths that the options of these names state; either may be empty.
struct GgufModel {
  std::string path;
  std::string config = {};  // plan::ConvertOptions::config
  std::string mmproj = {};  // plan::ConvertOptions::mmproj
};

// Converts the model with default options and opens the bundle in memory; nothing is written to a
// disk. Messages call the bundle by the path of the file. The bundle takes as much memory of this
// process as it has bytes, beside the memory of the conversion. kIo, before anything is computed,
// if the bundle has more bytes than the system has available.
Result<packer::Bundle> bundle_in_memory(const GgufModel& model, GgufMatrices matrices,
                                        ThreadPool& pool, bool all_logits = false);

}  // namespace ferry::conversion
