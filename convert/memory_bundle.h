// bundle_in_memory(): a checkpoint as a bundle that is on no disk, to be executed at once.
#pragma once

#include <string>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"

namespace ferry::convert {

// What `ferry convert` makes of `checkpoint` without options but `--config` where `config` is not
// empty, under the path of the checkpoint.
// Its bytes are memory of this process; beside them converting takes what it always takes. kIo,
// before anything is computed, where they are more than the system has available.
Result<packer::Bundle> bundle_in_memory(const std::string& checkpoint, const std::string& config,
                                        ThreadPool& pool);

}  // namespace ferry::convert
