// The graphs in the blobs of a program's delegates, as far as we can read them. Private to audit/.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/shape.h"
#include "formats/pte/reader.h"
#include "formats/xnnpack/graph.h"

namespace ferry::audit {

// What a graph says of one of its constants.
struct GraphConstant {
  std::string dtype;  // "qbint4"; empty where nothing uses it
  Shape shape;
  bool scales = false;
};
// [i] is constants[i] of the graph.
std::vector<GraphConstant> describe_constants(const xnnpack::Graph& graph);

struct DelegateGraphs {
  // [i] is the graph of ProgramData::delegates[i], nullopt where it is not one that we read.
  std::vector<std::optional<xnnpack::Graph>> graphs;
  std::vector<std::string> backends;            // of the same
  std::map<std::string, GraphConstant> by_key;  // constants in named data and data files
  bool all_read = true;
};
// kBadInput for a blob of XnnpackBackend that is malformed, or that its calls do not fit. `name` of
// the program begins the messages.
Result<DelegateGraphs> read_delegate_graphs(const pte::LoadedProgram& loaded,
                                            const std::string& name);

}  // namespace ferry::audit
