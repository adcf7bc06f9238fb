// What only a program and its blobs together can tell: that the calls of the backend hand over what
// the graphs of the blobs take. The official runtime does not check it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/pte/reader.h"
#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// [i] is the graph of ProgramData::delegates[i], nullopt where no delegate of XnnpackBackend has
// that blob. `name` of the program begins the messages.
Result<std::vector<std::optional<Graph>>> read_blobs(const pte::LoadedProgram& loaded,
                                                     const std::string& name);

// Every call of XnnpackBackend in `method` has as many arguments as its graph has externals. Each
// is a contiguous tensor of the external's datatype (i64 where the graph makes int32) and upper
// bounds; a scalar stands for a value of one element in one dimension. Outputs are planned memory,
// or outputs of the method that the caller provides, and share no bytes with another argument.
// `method` has been validated (pte::read_program), and `graphs` are those of its program.
Status check_calls(const pte::Method& method, const std::vector<std::optional<Graph>>& graphs,
                   const std::string& name);

}  // namespace ferry::xnnpack
