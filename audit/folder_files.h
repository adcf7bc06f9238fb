// Finds and classifies the files of a folder that hold no tensors. Private to audit/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "audit/audit.h"
#include "core/result.h"

namespace ferry::audit {

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
