// One function audits each kind of target, without findings and digests. Private to audit/.
#pragma once

#include <string>

#include "audit/audit.h"
#include "core/file.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::audit {

Result<Audit> audit_bundle(const std::string& path, ThreadPool& pool);
// Audits a checkpoint that is a directory or a file.
Result<Audit> audit_checkpoint(const std::string& path);
// Audit one .pte file or one .ptd file.
Result<Audit> audit_program(const InputFile& file);
Result<Audit> audit_data(const InputFile& file);
// Audits a directory of .pte and .ptd files without a manifest.
Result<Audit> audit_folder(const std::string& path);

}  // namespace ferry::audit
