// write_staged() is the frame of every conversion that writes files. Private to packer/.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/file_set.h"
#include "packer/file_writer.h"
#include "packer/staging_directory.h"

namespace ferry::packer {

struct StagedOutput {
  std::string path;  // path of the target
  StagingDirectory::Kind kind = StagingDirectory::Kind::kBundle;
  bool overwrite = false, resume = false;
  bool synced = true;  // see BundleTarget::synced
  const FileSet* files = nullptr;
  const std::vector<PlannedFile>* listing = nullptr;  // all files that will be written
  // A directory with parts that are moved into the output before the rest is written; empty: none.
  std::string parts = {};
  // Returns the plan as a text, which differs if recipes or positions differ. Used only with
  // `resume`.
  std::function<std::string()> plan_text = nullptr;
};

// Fills the staging directory. The second argument is what an earlier run has left, or nullptr.
using FillStage = std::function<Status(const StagingDirectory&, ResumableStage*)>;

// Makes or takes over the staging directory of the target, checks the free space, fills the
// directory and gives it its final name. After an error nothing is left or, with `resume`, what the
// next run can continue from.
Status write_staged(const StagedOutput& output, ThreadPool& pool, const FillStage& fill);

// Moves the data files of all parts in `directory` into a stage, after adding their journals to the
// journal of the stage (packer/bundle_part.cc). kBadInput, with names, for parts of another
// checkpoint, plan or version, and for data files that no part has; nothing is moved then. After an
// interruption a second call gives the same result.
Status take_parts(const std::string& directory, const FileSet& plan, std::string_view fingerprint,
                  StagingDirectory& stage);
// Removes what take_parts() leaves of the parts, as far as possible. Does nothing for an empty
// name.
void remove_parts(const std::string& directory);

// kIo if tensors or files that were read have changed meanwhile, because bytes of two states of a
// checkpoint must never be mixed.
Status check_sources_unchanged(const FileSet& files);

}  // namespace ferry::packer
