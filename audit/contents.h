// Reads all bytes of an artifact: digests, and what the values of tensors are. Private to audit/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "audit/audit.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::audit {

// Sets Leaf::sha256 where it is not known, and Leaf::content. `path` is that of the target. Memory
// is a MiB for each thread. kIo where a file is not what it was; kInterrupted.
Status read_contents(const std::string& path, Audit& audit,
                     const std::function<void(uint64_t done, uint64_t total)>& progress,
                     ThreadPool& pool);

}  // namespace ferry::audit
