// Reads the options that a bundle was made with, and plans conversions of a checkpoint with them.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"

namespace ferry::plan {

// The checkpoint of a bundle: `path` becomes ConvertOptions::source, the others the fields of the
// same names.
struct BundleSource {
  std::string path, config = {}, lora = {}, mmproj = {};
};

// Returns the options that the manifest of the bundle records. Bundles before version 6 of the
// format record none; the options that decide programs are then read from the programs, and dtypes
// are left at their defaults. kBadInput if a recorded option has an invalid value.
Result<ConvertOptions> options_of(const packer::Bundle& bundle, const BundleSource& source);

// Returns the factors that the programs of the bundle take; their contents are those of the chosen
// adapter. The bundle must outlive them. Empty for a bundle without them.
graph::FactorSlots factors_of(const packer::Bundle& bundle);

// Plans the conversion of a checkpoint for comparison with the bundle. A checkpoint whose keys do
// not fit, or that holds another model, is an error. Options that the model does not accept are an
// error too.
Result<Conversion> plan_for(const packer::Bundle& bundle, const ConvertOptions& options,
                            ThreadPool& pool);

// Plans the conversion that should have made the bundle. If the recorded dtypes give other dtypes
// than the bundle has, because the checkpoint has other dtypes than the original one, the dtypes of
// the bundle are used.
Result<Conversion> plan_again(const packer::Bundle& bundle, ConvertOptions options,
                              ThreadPool& pool);

// Plans the model of the bundle in f32 for execute_checkpoint(): one part per layer, logits of all
// positions, calls of at most `call_length` tokens and at most the context length.
Result<Conversion> plan_f32_layers(const packer::Bundle& bundle, ConvertOptions options,
                                   int64_t call_length, ThreadPool& pool);

}  // namespace ferry::plan
