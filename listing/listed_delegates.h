// What a listing says about the delegates of a program. Private to pipeline/.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/reader.h"
#include "listing/listing.h"

namespace ferry::listing {

// For each method, its delegates. Blobs of backends that we do not know are listed by their size;
// a blob of XnnpackBackend that is well formed but not for us says why. kBadInput for one that is
// malformed, or that its calls do not fit. `name` begins the messages.
Result<std::vector<std::vector<ListedDelegate>>> list_delegates(const pte::LoadedProgram& loaded,
                                                                const std::string& name);

}  // namespace ferry::listing
