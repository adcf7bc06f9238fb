// leaves_of_checkpoint() describes the bytes of a checkpoint's tensor files. Private to audit/.
#pragma once

#include <vector>

#include "audit/audit.h"
#include "audit/leaf.h"
#include "checkpoint/checkpoint.h"
#include "core/result.h"

namespace ferry::audit {

// `files` are the tensor files in the order of TensorSource::files(). Leaf::file is an index into
// them.
struct CheckpointLeaves {
  std::vector<AuditedFile> files;
  std::vector<Leaf> leaves;
};
// Reads the directories of zip files. Everything else comes from headers that the open checkpoint
// holds already.
Result<CheckpointLeaves> leaves_of_checkpoint(const checkpoint::Checkpoint& checkpoint,
                                              const std::string& path);

}  // namespace ferry::audit
