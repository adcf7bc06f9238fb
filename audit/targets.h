// Audits of the kinds of targets, without findings and digests. Private to audit/.
#pragma once

#include <string>

#include "audit/audit.h"
#include "core/file.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::audit {

Result<Audit> audit_bundle(const std::string& path, ThreadPool& pool);
// A directory or a file.
Result<Audit> audit_checkpoint(const std::string& path);
// One .pte or .ptd.
Result<Audit> audit_program(const InputFile& file);
Result<Audit> audit_data(const InputFile& file);
// A directory of .pte and .ptd files without a manifest.
Result<Audit> audit_folder(const std::string& path);

}  // namespace ferry::audit
