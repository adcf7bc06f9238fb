// read_contents() reads all bytes of an artifact for digests and properties of values. Private to
// audit/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "audit/audit.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::audit {

// Sets Leaf::content, and Leaf::sha256 where it is empty. `path` is the audited target. Uses 1 MiB
// of memory per thread. Returns kIo if a file has changed, and kInterrupted.
Status read_contents(const std::string& path, Audit& audit,
                     const std::function<void(uint64_t done, uint64_t total)>& progress,
                     ThreadPool& pool);

}  // namespace ferry::audit
