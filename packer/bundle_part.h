// Parts of a bundle are data files that other hosts have written. Each part is a directory of its
// own with a journal of its contents (stage_journal.h). Private to packer/.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "packer/bundle_plan.h"
#include "packer/file_set.h"
#include "packer/staging_directory.h"

namespace ferry::packer {

// Returns the data files of one part. Each file, the largest first, goes to the part that has the
// fewest bytes so far, so that parts have about equal sizes. kUsage if a part would have no file.
Result<FileSet> files_of_part(const FileSet& plan, const BundlePart& part);

// Moves the data files of all parts in `directory` into a stage, after adding their journals to the
// journal of the stage. kBadInput, with names, for parts of another checkpoint, plan or version,
// and for data files that no part has; nothing is moved then. After an interruption a second call
// gives the same result.
Status take_parts(const std::string& directory, const FileSet& plan, std::string_view fingerprint,
                  StagingDirectory& stage);

// Removes what take_parts() leaves of the parts, as far as possible. Does nothing for an empty
// name.
void remove_parts(const std::string& directory);

}  // namespace ferry::packer
