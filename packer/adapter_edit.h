// Adds adapters to bundles, and removes them. No byte of the other files changes: the new directory
// has the same files, under second names (hard links), or copies where the file system has none. It
// replaces the old one in one step.
#pragma once

#include <functional>
#include <string>

#include "core/progress.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"

namespace ferry::packer {

struct AdapterEdit {
  // If set, called with the directory in which the bundle is complete, before it gets its name. The
  // function may add the signature of the bundle; an error leaves the bundle as it was.
  std::function<Status(const std::string& directory)> finish = {};
  ShowProgress progress = {};
};

// Adds the data file of the adapter, whose recipes refer to `source`. An adapter of the same name
// is replaced if `overwrite` is set, otherwise kExists. kUnsupported for a bundle whose programs
// take no adapters. Other errors are those of BundlePlan::write(). Returns the manifest as written.
// An old signature is not carried over.
Result<Manifest> add_adapter(const Bundle& bundle, const AdapterInput& adapter,
                             const TensorSource& source, bool overwrite, const AdapterEdit& edit,
                             ThreadPool& pool);

// Removes the adapter. kUsage if there is none of this name.
Result<Manifest> remove_adapter(const Bundle& bundle, const std::string& name,
                                const AdapterEdit& edit);

}  // namespace ferry::packer
