// Parts of a bundle: data files that other hosts have written, each part in a directory of its own,
// with the journal of what is in them (stage_journal.h). Private to packer/.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "packer/bundle_plan.h"
#include "packer/file_set.h"
#include "packer/staging_directory.h"

namespace ferry::packer {

// The data files of one part alone: the largest file goes to the part that has the fewest bytes so
// far, so that parts are of about one size. kUsage where a part would have none.
Result<FileSet> files_of_part(const FileSet& plan, const BundlePart& part);

// Moves the data files of all parts in `directory` into a stage, after what their journals say has
// been added to its own. kBadInput, by name, for parts of another checkpoint, plan or version, and
// for data files that no part has; nothing is moved then. A run that was stopped in between is
// repeated with the same result.
Status take_parts(const std::string& directory, const FileSet& plan, std::string_view fingerprint,
                  StagingDirectory& stage);

// Removes what take_parts() leaves of them, as far as that is possible; nothing for an empty name.
void remove_parts(const std::string& directory);

}  // namespace ferry::packer
