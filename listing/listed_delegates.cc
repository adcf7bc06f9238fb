#include "listing/listed_delegates.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/reader.h"

namespace ferry::listing {
namespace {

Shape shape_of(const std::vector<uint32_t>& dims) { return {dims.begin(), dims.end()}; }

// Describes the constants of a graph by what its values say of them.
std::vector<ListedConstant> list_constants(const xnnpack::Graph& graph) {
  std::vector<ListedConstant> listed;
  for (const xnnpack::Constant& constant : graph.constants) {
    listed.push_back({constant.key, constant.bytes});
  }
  for (const xnnpack::Value& value : graph.values) {
    listed[value.constant].kind = datatype_name(value.datatype);
    listed[value.constant].shape = shape_of(value.dims);
    if (const auto* q = std::get_if<xnnpack::PerChannel>(&value.quantization)) {
      listed[q->scales].kind = "f32";
      listed[q->scales].shape = {q->num_scales};
    }
    if (const auto* q = std::get_if<xnnpack::PerChannelGroup>(&value.quantization)) {
      listed[value.constant].group = q->group_size;
      listed[q->scales].kind = "bf16";
      listed[q->scales].shape = {value.dims[0], value.dims[1] / q->group_size};
    }
  }
  listed.erase(listed.begin());
  return listed;
}

void describe_delegate(const xnnpack::Graph& graph, ListedDelegate& listed) {
  std::map<std::string, size_t> counts;
  for (const xnnpack::Node& node : graph.nodes) ++counts[node_name(node.kind)];
  listed.nodes.assign(counts.begin(), counts.end());
  listed.constants = list_constants(graph);
}

class Lister {
 public:
  Lister(const pte::LoadedProgram& loaded, const std::string& name)
      : loaded_(loaded), name_(name), graphs_(loaded.data.delegates.size()) {}

  Result<std::vector<ListedDelegate>> list(const pte::Method& method) {
    std::vector<ListedDelegate> out;
    bool all_read = true;
    for (const pte::Delegate& delegate : method.delegates) {
      out.push_back(FERRY_TRY(list(delegate)));
      all_read = all_read && out.back().not_read.empty();
    }
    if (all_read) FERRY_RETURN_IF_ERROR(xnnpack::check_calls(method, graphs_, name_));
    return out;
  }

 private:
  Result<ListedDelegate> list(const pte::Delegate& delegate) {
    const std::span<const std::byte> blob = loaded_.data.delegates[delegate.data];
    ListedDelegate listed{.backend = delegate.backend, .bytes = blob.size()};
    if (delegate.backend != xnnpack::kBackend) return listed;
    std::optional<xnnpack::Graph>& graph = graphs_[delegate.data];
    if (!graph) {
      auto read = xnnpack::read_blob(blob, fmt::format("{}: blob {}", name_, delegate.data));
      if (!read && read.error().code != ErrorCode::kUnsupported) {
        return read.pass();
      }
      if (!read) {
        listed.not_read = read.error().message;
        return listed;
      }
      graph = *std::move(read);
    }
    describe_delegate(*graph, listed);
    return listed;
  }

  const pte::LoadedProgram& loaded_;
  const std::string& name_;
  std::vector<std::optional<xnnpack::Graph>> graphs_;
};

}  // namespace

Result<std::vector<std::vector<ListedDelegate>>> list_delegates(const pte::LoadedProgram& loaded,
                                                                const std::string& name) {
  Lister lister(loaded, name);
  std::vector<std::vector<ListedDelegate>> out;
  for (const pte::Method& method : loaded.program.methods) {
    out.push_back(FERRY_TRY(lister.list(method)));
  }
  return out;
}

}  // namespace ferry::listing
