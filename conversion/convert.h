// The straight line of docs/architecture.md in one function: a checkpoint becomes a bundle.
#pragma once

#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"

namespace ferry::conversion {

// plan::plan_conversion(). If a reference will be embedded, it is read, and an error if it is not
// one of this model.
Result<plan::Conversion> prepare(const plan::ConvertOptions& options, ThreadPool* pool = nullptr);

// Calibrates where that is needed, plans and writes in one step, for callers that report neither
// plan nor progress. Keys that do not fit the model are an error. `overwrite`: replaces an existing
// bundle at `directory`.
Result<packer::WrittenBundle> convert(const plan::ConvertOptions& options,
                                      const std::string& directory, bool overwrite,
                                      ThreadPool& pool);
Result<packer::WrittenBundle> convert(const plan::ConvertOptions& options,
                                      const packer::BundleTarget& target, ThreadPool& pool);

// The bundle that conversion with default options makes of `checkpoint`, in memory and on no disk,
// to be executed at once. `config` is a config.json instead of the checkpoint's, or empty. The
// bundle is named by the path of the checkpoint. Its bytes are memory of this process; beside them
// converting takes what it always takes. kIo, before anything is computed, where they are more than
// the system has available.
Result<packer::Bundle> bundle_in_memory(const std::string& checkpoint, const std::string& config,
                                        ThreadPool& pool);

}  // namespace ferry::conversion
