// One function audits each kind of target, without findings and digests; and the files of a folder
// that hold no tensors are found. Private to audit/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// Returns "tokenizer", "metadata" or "other", decided by the name alone.
std::string_view type_of_file(std::string_view name);

// Lists the regular files below `directory` whose paths are not in `known`, sorted by path. Links
// to files count as files; links to directories are not followed. Returns kUnsupported for more
// than 100,000 files or 16 levels.
Result<std::vector<AuditedFile>> other_files(const std::string& directory,
                                             const std::vector<AuditedFile>& known);

// Returns a leaf that covers the whole file.
Leaf whole_file(const AuditedFile& file, uint32_t index);

}  // namespace ferry::audit
