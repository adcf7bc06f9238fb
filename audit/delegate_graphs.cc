#include "audit/delegate_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/reader.h"

namespace ferry::audit {
namespace {

// kUnsupported blobs stay unread.
Status read_graph(const pte::LoadedProgram& loaded, uint32_t blob, const std::string& name,
                  DelegateGraphs& out) {
  if (out.graphs[blob]) return {};
  auto read =
      xnnpack::read_blob(loaded.data.delegates[blob], fmt::format("{}: blob {}", name, blob));
  if (!read && read.error().code != ErrorCode::kUnsupported) {
    return read.pass();
  }
  if (read) {
    out.graphs[blob] = *std::move(read);
  } else {
    out.all_read = false;
  }
  return {};
}

void note_keys(DelegateGraphs& out) {
  for (const std::optional<xnnpack::Graph>& graph : out.graphs) {
    if (!graph) continue;
    const std::vector<GraphConstant> described = describe_constants(*graph);
    for (size_t i = 1; i < described.size(); ++i) {
      const std::string& key = graph->constants[i].key;
      if (!key.empty()) out.by_key.emplace(key, described[i]);
    }
  }
}

}  // namespace

std::vector<GraphConstant> describe_constants(const xnnpack::Graph& graph) {
  std::vector<GraphConstant> out(graph.constants.size());
  for (const xnnpack::Value& value : graph.values) {
    if (value.constant == 0) continue;
    out[value.constant] = {datatype_name(value.datatype), {value.dims.begin(), value.dims.end()}};
    if (const auto* q = std::get_if<xnnpack::PerChannel>(&value.quantization)) {
      out[q->scales] = {"f32", {q->num_scales}, true};
    }
    if (const auto* q = std::get_if<xnnpack::PerChannelGroup>(&value.quantization)) {
      out[q->scales] = {"bf16", {q->num_scales}, true};
    }
  }
  return out;
}

Result<DelegateGraphs> read_delegate_graphs(const pte::LoadedProgram& loaded,
                                            const std::string& name) {
  DelegateGraphs out;
  out.graphs.resize(loaded.data.delegates.size());
  out.backends.resize(loaded.data.delegates.size());
  for (const pte::Method& method : loaded.program.methods) {
    bool all_read = true;
    for (const pte::Delegate& delegate : method.delegates) {
      out.backends[delegate.data] = delegate.backend;
      if (delegate.backend == xnnpack::kBackend) {
        FERRY_RETURN_IF_ERROR(read_graph(loaded, delegate.data, name, out));
      } else {
        out.all_read = false;
      }
      all_read = all_read && out.graphs[delegate.data];
    }
    if (all_read) FERRY_RETURN_IF_ERROR(xnnpack::check_calls(method, out.graphs, name));
  }
  note_keys(out);
  return out;
}

}  // namespace ferry::audit
