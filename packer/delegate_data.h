// Finds the named data that the delegates of a program need. Private to packer/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/reader.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {

// Returns the keys that delegates of XnnpackBackend need and the program file does not have: each
// once, in order of first use. `name` of the program begins the messages.
Result<std::vector<std::string>> keys_of_delegates(const pte::LoadedProgram& loaded,
                                                   const std::string& name);

// Checks the calls of XnnpackBackend in a program against the graphs of its blobs, and the size of
// each key's data in the data files that the program loads. With `contents` it also checks that
// scales are positive and normal. Data files that are not in `data` have been reported before.
void check_delegates(const ManifestProgram& entry, const pte::LoadedProgram& loaded,
                     const std::map<std::string, BundleData>& data, bool contents,
                     ProblemList& problems);

}  // namespace ferry::packer
