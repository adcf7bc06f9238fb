// The named data that the delegates of a program ask for. Private to packer/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/reader.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {

// The keys that delegates of XnnpackBackend ask for and the program file does not have: each once,
// in order of first use. `name` of the program begins the messages.
Result<std::vector<std::string>> keys_of_delegates(const pte::LoadedProgram& loaded,
                                                   const std::string& name);

// The calls of XnnpackBackend in a program against the graphs of its blobs, and each key that they
// ask for against the data files that the program loads, by number of bytes; with `contents` also
// that scales are positive and normal. Data files that are not in `data` have been reported.
void check_delegates(const ManifestProgram& entry, const pte::LoadedProgram& loaded,
                     const std::map<std::string, BundleData>& data, bool contents,
                     ProblemList& problems);

}  // namespace ferry::packer
