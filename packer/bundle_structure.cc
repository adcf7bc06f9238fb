// check_data_file(), check_program() and check_delegates() check the data files and programs of a
// bundle against its manifest. Only check_delegates() reads bytes of tensors, if it is asked to.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "core/text.h"
#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/validate.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {
namespace {

Shape shape_of(const std::vector<int32_t>& sizes) { return {sizes.begin(), sizes.end()}; }

// Returns the tensor at `value`; nullptr, after adding a problem, if it does not have the stated
// type.
const pte::Tensor* check_value(const pte::Method& method, int32_t value, const std::string& what,
                               const DType* dtype, const Shape* shape, const std::string& file,
                               ProblemList& problems) {
  const pte::Tensor* tensor = nullptr;
  if (value >= 0 && static_cast<size_t>(value) < method.values.size()) {
    tensor = std::get_if<pte::Tensor>(&method.values[static_cast<size_t>(value)]);
  }
  if (!tensor) {
    problems.add(file,
                 fmt::format("{} is value {}, which is not a tensor of the program", what, value));
    return nullptr;
  }
  const Shape actual = shape_of(tensor->sizes);
  if (dtype && (tensor->dtype != *dtype || actual != *shape)) {
    problems.add(file,
                 fmt::format("{} is {} in the program and {} in the manifest", what,
                             describe_type(tensor->dtype, actual), describe_type(*dtype, *shape)));
    return nullptr;
  }
  return tensor;
}

void check_port_list(const pte::Method& method, const std::vector<int32_t>& values,
                     const std::vector<ManifestPort>& ports, std::string_view role,
                     const std::string& file, ProblemList& problems) {
  if (values.size() != ports.size()) {
    problems.add(
        file, fmt::format("has {} {}s, the manifest states {}", values.size(), role, ports.size()));
    return;
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    check_value(method, values[i], fmt::format("{} {}", role, quoted(ports[i].name)),
                &ports[i].dtype, &ports[i].shape, file, problems);
  }
}

// The planned memory of each buffer of a program, from the first method that has the buffer.
using BufferPlaces = std::map<std::string_view, pte::Allocation>;

void check_buffer(const pte::Method& method, const ManifestBuffer& buffer, const std::string& file,
                  BufferPlaces& places, ProblemList& problems) {
  const std::string what = fmt::format("buffer {}", quoted(buffer.name));
  const pte::Tensor* tensor =
      check_value(method, buffer.value, what, &buffer.dtype, &buffer.shape, file, problems);
  if (!tensor) return;
  if (!tensor->allocation) {
    problems.add(file, fmt::format("{} has no planned memory", what));
  } else if (places.emplace(buffer.name, *tensor->allocation).first->second !=
             *tensor->allocation) {
    problems.add(file, fmt::format("{} is at another place in method {} than in an earlier one",
                                   what, quoted(method.name)));
  }
  if (pte::tensor_bytes(*tensor) != buffer.bytes) {
    problems.add(file, fmt::format("{} does not have the {} bytes that the manifest states", what,
                                   buffer.bytes));
  }
  if ((tensor->data_index > 0) != (buffer.init == "stored")) {
    problems.add(file,
                 fmt::format("{} is {} in the manifest, but the program {} its contents", what,
                             buffer.init, tensor->data_index > 0 ? "has" : "does not have"));
  }
}

void check_method(const ManifestMethod& stated, const pte::Method& method, const std::string& file,
                  BufferPlaces& places, ProblemList& problems) {
  check_port_list(method, method.inputs, stated.inputs, "input", file, problems);
  check_port_list(method, method.outputs, stated.outputs, "output", file, problems);
  std::set<std::string_view> names;
  for (const ManifestProbe& probe : stated.probes) {
    check_value(method, probe.value, fmt::format("probe {}", quoted(probe.name)), nullptr, nullptr,
                file, problems);
    if (!names.insert(probe.name).second) {
      problems.add(file, fmt::format("has two probes {}", quoted(probe.name)));
    }
  }
  names.clear();
  for (const ManifestBuffer& buffer : stated.buffers) {
    check_buffer(method, buffer, file, places, problems);
    if (!names.insert(buffer.name).second) {
      problems.add(file, fmt::format("has two buffers {}", quoted(buffer.name)));
    }
  }
}

using KeyMap = std::unordered_map<std::string_view, const ptd::NamedTensor*>;

void check_externals(const pte::Method& method, const KeyMap& keys, const std::string& file,
                     ProblemList& problems) {
  for (const pte::Value& value : method.values) {
    const auto* tensor = std::get_if<pte::Tensor>(&value);
    if (!tensor || !tensor->external) continue;
    const auto found = keys.find(tensor->fqn);
    if (found == keys.end()) {
      problems.add(file,
                   fmt::format("tensor {} is in none of its data files", quoted(tensor->fqn)));
    } else if (!found->second->is_tensor) {
      problems.add(file, fmt::format("tensor {} is data of a delegate in its data file",
                                     quoted(tensor->fqn)));
    } else if (found->second->dtype != tensor->dtype || found->second->sizes != tensor->sizes) {
      problems.add(
          file,
          fmt::format("tensor {} is {} in the program and {} in its data file", quoted(tensor->fqn),
                      describe_type(tensor->dtype, shape_of(tensor->sizes)),
                      describe_type(found->second->dtype, shape_of(found->second->sizes))));
    }
  }
}

}  // namespace

StoredType stored_type(DType dtype, const Shape& shape) {
  StoredType stored{dtype, shape};
  if (dtype != DType::kI4 || shape.empty()) return stored;
  stored.dtype = DType::kU8;
  stored.shape.back() /= 2;
  return stored;
}

std::vector<std::string> backends_of(const pte::Program& program) {
  std::vector<std::string> backends;
  for (const pte::Method& method : program.methods) {
    for (const pte::Delegate& delegate : method.delegates) {
      if (std::ranges::count(backends, delegate.backend) > 0) continue;
      backends.push_back(delegate.backend);
    }
  }
  return backends;
}

std::string describe_type(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), to_string(shape));
}

void check_data_file(const Manifest& manifest, const std::string& file,
                     const ptd::DataFile& content, ProblemList& problems) {
  std::vector<const ManifestTensor*> stated;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.file == file) stated.push_back(&tensor);
  }
  if (stated.size() != content.tensors.size()) {
    problems.add(file, fmt::format("holds {} tensors, the manifest states {}",
                                   content.tensors.size(), stated.size()));
    return;
  }
  for (size_t i = 0; i < stated.size(); ++i) {
    const ManifestTensor& want = *stated[i];
    const ptd::NamedTensor& have = content.tensors[i];
    if (have.key != want.name) {
      problems.add(file, fmt::format("holds tensor {} where the manifest has {}", quoted(have.key),
                                     quoted(want.name)));
      continue;
    }
    const StoredType type{have.dtype, shape_of(have.sizes)};
    if (have.is_tensor && type != stored_type(want.dtype, want.shape)) {
      problems.add(file, fmt::format("tensor {} is {}, the manifest states {}", quoted(have.key),
                                     describe_type(type.dtype, type.shape),
                                     describe_type(want.dtype, want.shape)));
    }
    const ptd::Segment& segment = content.segments[have.segment];
    if (segment.offset != want.offset || segment.size != want.bytes) {
      problems.add(file, fmt::format("tensor {} has {} bytes at offset {}, the manifest states {} "
                                     "at {}",
                                     quoted(have.key), segment.size, segment.offset, want.bytes,
                                     want.offset));
    }
  }
}

void check_adapter_file(const ptd::DataFile& without, const std::string& file,
                        const ptd::DataFile& content, ProblemList& problems) {
  if (without.tensors.size() != content.tensors.size()) {
    problems.add(file, fmt::format("holds {} tensors, an adapter of this bundle has {}",
                                   content.tensors.size(), without.tensors.size()));
    return;
  }
  for (size_t i = 0; i < content.tensors.size(); ++i) {
    const ptd::NamedTensor &want = without.tensors[i], &have = content.tensors[i];
    if (have.key == want.key && have.is_tensor && have.dtype == want.dtype &&
        have.sizes == want.sizes) {
      continue;
    }
    problems.add(file,
                 fmt::format("holds {} {} where the bundle has {} {}", quoted(have.key),
                             describe_type(have.dtype, shape_of(have.sizes)), quoted(want.key),
                             describe_type(want.dtype, shape_of(want.sizes))));
  }
}

void check_program(const ManifestProgram& entry, const pte::Program& program,
                   const std::map<std::string, BundleData>& data, ProblemList& problems) {
  KeyMap keys;
  for (const std::string& name : entry.data_files) {
    const auto found = data.find(name);
    if (found == data.end()) return;  // the missing file was reported before
    for (const ptd::NamedTensor& tensor : found->second.content.tensors) {
      keys.emplace(tensor.key, &tensor);
    }
  }
  for (const pte::Method& method : program.methods) {
    check_externals(method, keys, entry.file, problems);
  }
  if (const auto backends = backends_of(program); backends != entry.backends) {
    problems.add(entry.file,
                 fmt::format("needs the backends [{}], the manifest states [{}]",
                             printable(fmt::to_string(fmt::join(backends, ", "))),
                             printable(fmt::to_string(fmt::join(entry.backends, ", ")))));
  }
  BufferPlaces places;
  for (const ManifestMethod& stated : entry.methods) {
    const pte::Method* method = program.find(stated.name_in_program());
    if (method == nullptr) {
      problems.add(entry.file, fmt::format("has no method {}", quoted(stated.name_in_program())));
    } else {
      check_method(stated, *method, entry.file, places, problems);
    }
  }
}

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
