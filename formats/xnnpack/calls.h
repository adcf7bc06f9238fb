// Checks a program together with its blobs: calls of the backend must pass the arguments that the
// graphs of the blobs take. The official runtime does not check this.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/reader.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// Element i of the result is the graph of ProgramData::delegates[i], or nullopt if no delegate of
// XnnpackBackend has that blob. `name` is the name of the program and begins the messages.
Result<std::vector<std::optional<Graph>>> read_blobs(const pte::LoadedProgram& loaded,
                                                     const std::string& name);

// Checks that every call of XnnpackBackend in `method` has as many arguments as its graph has
// externals. Each argument is a contiguous tensor of the external's datatype (i64 if the graph
// makes int32) and upper bounds; a scalar may stand for a value of one element in one dimension.
// Outputs are planned memory, or outputs of the method that the caller provides, and share no bytes
// with another argument. `method` has been validated (pte::read_program), and `graphs` are those of
// its program.
Status check_calls(const pte::Method& method, const std::vector<std::optional<Graph>>& graphs,
                   const std::string& name);

}  // namespace ferry::xnnpack
