// The files of a folder that hold no tensors, by what they are for. Private to audit/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "audit/audit.h"
#include "core/result.h"

namespace ferry::audit {

// "tokenizer", "metadata" or "other", by its name.
std::string_view type_of_file(std::string_view name);

// All regular files below `directory`, without those whose paths are in `known`, by path. Symbolic
// links count as the files that they lead to; those to directories are not followed. kUnsupported
// for more than 100,000 files or 16 levels.
Result<std::vector<AuditedFile>> other_files(const std::string& directory,
                                             const std::vector<AuditedFile>& known);

// A leaf that is the whole file.
Leaf whole_file(const AuditedFile& file, uint32_t index);

}  // namespace ferry::audit
