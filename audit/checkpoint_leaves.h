// What the bytes of the tensor files of a checkpoint are. Private to audit/.
#pragma once

#include <vector>

#include "audit/audit.h"
#include "audit/leaf.h"
#include "checkpoint/checkpoint.h"
#include "core/result.h"

namespace ferry::audit {

// The tensor files, in the order of the source, and their leaves; Leaf::file counts from 0.
struct CheckpointLeaves {
  std::vector<AuditedFile> files;
  std::vector<Leaf> leaves;
};
// Reads directories of zip files and nothing else that the checkpoint has not read when it was
// opened.
Result<CheckpointLeaves> leaves_of_checkpoint(const checkpoint::Checkpoint& checkpoint,
                                              const std::string& path);

}  // namespace ferry::audit
