#include "packer/delegate_data.h"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/validate.h"

namespace ferry::packer {
namespace {

using Bytes = std::span<const std::byte>;
using DelegateMap = std::unordered_map<std::string_view, Bytes>;

bool has_delegates(const pte::LoadedProgram& loaded) {
  return std::ranges::any_of(loaded.program.methods,
                             [](const pte::Method& method) { return !method.delegates.empty(); });
}

// The named data of data files takes precedence over that of the program, as in the official
// runtime.
DelegateMap keys_of(const ManifestProgram& entry, const pte::LoadedProgram& loaded,
                    const std::map<std::string, BundleData>& data) {
  DelegateMap keys;
  for (const std::string& file : entry.data_files) {
    const BundleData& from = data.at(file);
    for (const ptd::NamedTensor& tensor : from.content.tensors) {
      const ptd::Segment& segment = from.content.segments[tensor.segment];
      keys.emplace(tensor.key, from.file.bytes().subspan(segment.offset, segment.size));
    }
  }
  for (const pte::NamedData& named : loaded.program.named_data) {
    keys.emplace(named.key, loaded.data.named[named.data]);
  }
  return keys;
}

Status check_constants(const xnnpack::Graph& graph, Bytes blob, const DelegateMap& keys,
                       bool contents, const std::string& name) {
  const auto lookup = [&](std::string_view key) -> std::optional<Bytes> {
    const auto found = keys.find(key);
    return found == keys.end() ? std::nullopt : std::optional(found->second);
  };
  if (contents) return xnnpack::check_constants(graph, blob, lookup, name);
  for (size_t i = 1; i < graph.constants.size(); ++i) {
    FERRY_RETURN_IF_ERROR(xnnpack::constant_bytes(graph.constants[i], blob, lookup, name));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> keys_of_delegates(const pte::LoadedProgram& loaded,
                                                   const std::string& name) {
  std::vector<std::string> keys;
  if (!has_delegates(loaded)) return keys;
  std::unordered_set<std::string> known = {""};  // constants in a blob have no key
  for (const pte::NamedData& named : loaded.program.named_data) known.insert(named.key);
  for (const auto& graph : FERRY_TRY(xnnpack::read_blobs(loaded, name))) {
    if (!graph) continue;
    for (const xnnpack::Constant& constant : graph->constants) {
      if (known.insert(constant.key).second) keys.push_back(constant.key);
    }
  }
  return keys;
}

void check_delegates(const ManifestProgram& entry, const pte::LoadedProgram& loaded,
                     const std::map<std::string, BundleData>& data, bool contents,
                     ProblemList& problems) {
  if (!has_delegates(loaded)) return;
  const auto is_there = [&](const std::string& file) { return data.contains(file); };
  if (!std::ranges::all_of(entry.data_files, is_there)) return;
  const std::string name = problems.name_of(entry.file);
  const auto graphs = xnnpack::read_blobs(loaded, name);
  if (!graphs) return problems.add(entry.file, graphs.error());
  for (const pte::Method& method : loaded.program.methods) {
    if (const Status status = xnnpack::check_calls(method, *graphs, name); !status) {
      problems.add(entry.file, status.error());
    }
  }
  const DelegateMap keys = keys_of(entry, loaded, data);
  for (size_t i = 0; i < graphs->size(); ++i) {
    if (!(*graphs)[i]) continue;
    const Bytes blob = loaded.data.delegates[i];
    if (const Status status = check_constants(*(*graphs)[i], blob, keys, contents, name); !status) {
      problems.add(entry.file, status.error());
    }
  }
}

}  // namespace ferry::packer
