// The options that a bundle was made with, and conversions of a checkpoint with these options.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"

namespace ferry::plan {

// The options that the bundle was made with: those that its manifest records. Bundles before
// version 6 of the format record none; what decides programs is then found in the programs, and
// dtypes are left out. `source`, `config` and `lora` are those of ConvertOptions. kBadInput for a
// recorded option that has no such value.
Result<ConvertOptions> options_of(const packer::Bundle& bundle, const std::string& source,
                                  const std::string& config, const std::string& lora);

// A checkpoint whose keys do not fit, or that holds another model, is an error; so are options that
// the model does not take.
Result<Conversion> plan_for(const packer::Bundle& bundle, const ConvertOptions& options,
                            ThreadPool& pool);

// The conversion that the bundle should be the result of. Where the recorded dtypes give others
// than the bundle has, as for a checkpoint of other dtypes than the one it was made of, those of
// the bundle are taken.
Result<Conversion> plan_again(const packer::Bundle& bundle, ConvertOptions options,
                              ThreadPool& pool);

// The model of the bundle in f32, as execute_checkpoint() takes it: a part for each layer, logits
// of all positions, calls of `call_length` tokens or the context.
Result<Conversion> plan_f32_layers(const packer::Bundle& bundle, ConvertOptions options,
                                   int64_t call_length, ThreadPool& pool);

}  // namespace ferry::plan
