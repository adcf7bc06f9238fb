// Adds adapters in peft's format to bundles, without their checkpoint.
#pragma once

#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/adapter_edit.h"
#include "packer/bundle_reader.h"
#include "packer/manifest.h"

namespace ferry::conversion {

struct AdapterAddition {
  std::string path;  // directory of the adapter
  std::string name;
  bool overwrite = false;  // replaces an adapter of this name
};

// kUnsupported, by name, for what the programs of the bundle cannot hold: a layer that takes no
// factors, a rank or a dtype that is too large, and modules that replace those of the base. kUsage
// for a name that is none. Other errors are those of packer::add_adapter().
Result<packer::Manifest> add_adapter(const packer::Bundle& bundle, const AdapterAddition& added,
                                     const packer::AdapterEdit& edit, ThreadPool& pool);

}  // namespace ferry::conversion
