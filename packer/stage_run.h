// write_staged: the frame of every conversion that writes. Private to packer/.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/file_set.h"
#include "packer/file_writer.h"
#include "packer/staging_directory.h"

namespace ferry::packer {

struct StagedOutput {
  std::string path;  // of the target
  StagingDirectory::Kind kind = StagingDirectory::Kind::kBundle;
  bool overwrite = false, resume = false;
  bool synced = true;  // as BundleTarget::synced
  const FileSet* files = nullptr;
  const std::vector<PlannedFile>* listing = nullptr;  // of all that will be written
  // A directory with parts that are taken over before what is missing is written; empty: none.
  std::string parts = {};
  // The plan as a text: of another one differs where recipes or places do. For `resume` only.
  std::function<std::string()> plan_text = nullptr;
};

// Fills the staging directory; its second argument is nullptr, or what an earlier run has left.
using FillStage = std::function<Status(const StagingDirectory&, ResumableStage*)>;

// Makes or takes over the staging directory of the target, checks that there is room, fills it and
// gives it its name. On failure nothing is left, or with `resume` what the next run can go on with.
Status write_staged(const StagedOutput& output, ThreadPool& pool, const FillStage& fill);

// kIo where tensors or files that were read have changed meanwhile: bytes of two states of a
// checkpoint must never be mixed.
Status check_sources_unchanged(const FileSet& files);

}  // namespace ferry::packer
