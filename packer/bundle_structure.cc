// Cross-checks between the manifest, the programs and the data files of a bundle. No bytes of
// tensors are looked at.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "core/text.h"
#include "packer/bundle_examination.h"
#include "packer/segment_digest.h"

namespace ferry::packer {
namespace {

constexpr std::string_view kForward = "forward";
// Inputs that every program may ask for, whether or not the first one does.
constexpr std::string_view kModelInputs[] = {"tokens", "input_pos"};

std::string describe_type(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), to_string(shape));
}

Shape shape_of(const std::vector<int32_t>& sizes) { return {sizes.begin(), sizes.end()}; }

void check_unique_files(const Manifest& manifest, const std::string& self, ProblemList& problems) {
  std::set<std::string_view> names;
  for (const ManifestFile& file : manifest.files) {
    if (file.path == kManifestName) problems.add(self, "files lists the manifest itself");
    if (!names.insert(file.path).second) {
      problems.add(self, fmt::format("files lists {} twice", quoted(file.path)));
    }
  }
  const auto require = [&](const std::string& path, std::string_view role) {
    if (!names.contains(path)) {
      problems.add(self, fmt::format("{} {} is not among the files", role, quoted(path)));
    }
  };
  std::set<std::string_view> programs;
  for (const ManifestProgram& program : manifest.programs) {
    require(program.file, "program");
    if (!programs.insert(program.file).second) {
      problems.add(self, fmt::format("program {} is listed twice", quoted(program.file)));
    }
    std::set<std::string_view> data_files;
    for (const std::string& data : program.data_files) {
      require(data, "data file");
      if (!data_files.insert(data).second) {
        problems.add(self, fmt::format("program {} lists data file {} twice", quoted(program.file),
                                       quoted(data)));
      }
    }
  }
  for (const ManifestProgram& program : manifest.programs) {
    for (const std::string& data : program.data_files) {
      if (programs.contains(data)) {
        problems.add(self, fmt::format("{} is both a program and a data file", quoted(data)));
      }
    }
  }
  if (!manifest.reference.empty()) require(manifest.reference, "reference");
}

void check_tensors(const Manifest& manifest, const std::string& self, ProblemList& problems) {
  std::set<std::string_view> data_files;
  for (const ManifestProgram& program : manifest.programs) {
    data_files.insert(program.data_files.begin(), program.data_files.end());
  }
  std::set<std::string_view> names;
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (!names.insert(tensor.name).second) {
      problems.add(self, fmt::format("tensor {} is listed twice", quoted(tensor.name)));
    }
    if (!data_files.contains(tensor.file)) {
      problems.add(self, fmt::format("tensor {} is in {}, which no program loads",
                                     quoted(tensor.name), quoted(tensor.file)));
    }
  }
}

// Tensors of a data file are stated in ascending order and share bytes as a whole or not at all,
// and the method of each file is the one for its kind.
void check_places(const Manifest& manifest, const std::string& self, ProblemList& problems) {
  std::set<std::string_view> data_files;
  for (const ManifestProgram& program : manifest.programs) {
    data_files.insert(program.data_files.begin(), program.data_files.end());
  }
  const TensorsByFile tensors = tensors_by_file(manifest);
  for (const ManifestFile& file : manifest.files) {
    const bool segmented = data_files.contains(file.path);
    if (file.method != (segmented ? kSegmentsDigest : kPlainDigest)) {
      problems.add(self, fmt::format("file {} has a digest of method {}", quoted(file.path),
                                     quoted(file.method)));
    }
    const auto found = tensors.find(file.path);
    if (found != tensors.end() && !segments_of(found->second, file.bytes, nullptr)) {
      problems.add(
          self, fmt::format("tensors of {} overlap, are out of order or beyond its end, or share a "
                            "place but not a digest",
                            quoted(file.path)));
    }
  }
}

// Later programs are fed by earlier ones.
void check_ports(const Manifest& manifest, const std::string& self, ProblemList& problems) {
  std::unordered_map<std::string, const ManifestPort*> known;
  for (size_t i = 0; i < manifest.programs.size(); ++i) {
    const ManifestProgram& program = manifest.programs[i];
    const auto check_input = [&](const ManifestPort& port) {
      const auto found = known.find(port.name);
      if (found != known.end()) {
        if (port.dtype == found->second->dtype && port.shape == found->second->shape) return;
        problems.add(self, fmt::format("program {} takes {} as {}, an earlier one has it as {}",
                                       quoted(program.file), quoted(port.name),
                                       describe_type(port.dtype, port.shape),
                                       describe_type(found->second->dtype, found->second->shape)));
      } else if (i > 0 && std::find(std::begin(kModelInputs), std::end(kModelInputs), port.name) ==
                              std::end(kModelInputs)) {
        problems.add(self, fmt::format("input {} of program {} comes from no earlier program",
                                       quoted(port.name), quoted(program.file)));
      }
    };
    std::set<std::string_view> inputs;
    for (const ManifestPort& port : program.inputs) {
      check_input(port);
      if (!inputs.insert(port.name).second) {
        problems.add(self, fmt::format("program {} has two inputs {}", quoted(program.file),
                                       quoted(port.name)));
      }
    }
    for (const ManifestPort& port : program.inputs) known.emplace(port.name, &port);
    std::set<std::string_view> outputs;
    for (const ManifestPort& port : program.outputs) {
      known[port.name] = &port;  // a name means the latest value that has it
      if (outputs.insert(port.name).second) continue;
      problems.add(self, fmt::format("program {} has two outputs {}", quoted(program.file),
                                     quoted(port.name)));
    }
  }
}

// The programs hold all layers, in order.
void check_layers(const Manifest& manifest, const std::string& self, ProblemList& problems) {
  int64_t next = 0;
  for (const ManifestProgram& program : manifest.programs) {
    if (program.layer_count == 0) continue;
    if (program.first_layer != next) {
      problems.add(self, fmt::format("program {} begins with layer {} where {} is next",
                                     quoted(program.file), program.first_layer, next));
    }
    next = int64_t{program.first_layer} + program.layer_count;
  }
  if (next != manifest.num_layers) {
    problems.add(self, fmt::format("the programs end with layer {}, the model has {}", next,
                                   manifest.num_layers));
  }
}

// The tensor at `value`, of the stated type, or nullptr and a problem.
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

void check_buffer(const pte::Method& method, const ManifestBuffer& buffer, const std::string& file,
                  ProblemList& problems) {
  const std::string what = fmt::format("buffer {}", quoted(buffer.name));
  const pte::Tensor* tensor =
      check_value(method, buffer.value, what, &buffer.dtype, &buffer.shape, file, problems);
  if (!tensor) return;
  if (!tensor->allocation) {
    problems.add(file, fmt::format("{} has no planned memory", what));
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

void check_manifest(const Manifest& manifest, ProblemList& problems) {
  const std::string self(kManifestName);
  if (manifest.programs.empty()) problems.add(self, "lists no program");
  check_unique_files(manifest, self, problems);
  check_tensors(manifest, self, problems);
  check_places(manifest, self, problems);
  check_ports(manifest, self, problems);
  check_layers(manifest, self, problems);
  check_model(manifest, problems);
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
    const Shape shape = shape_of(have.sizes);
    if (have.dtype != want.dtype || shape != want.shape) {
      problems.add(file, fmt::format("tensor {} is {}, the manifest states {}", quoted(have.key),
                                     describe_type(have.dtype, shape),
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

void check_program(const ManifestProgram& entry, const pte::Program& program,
                   const std::map<std::string, BundleData>& data, ProblemList& problems) {
  const pte::Method* forward = program.find(kForward);
  if (!forward) {
    problems.add(entry.file, "has no method forward");
    return;
  }
  KeyMap keys;
  for (const std::string& name : entry.data_files) {
    const auto found = data.find(name);
    if (found == data.end()) return;  // reported already
    for (const ptd::NamedTensor& tensor : found->second.content.tensors) {
      keys.emplace(tensor.key, &tensor);
    }
  }
  for (const pte::Method& method : program.methods) {
    check_externals(method, keys, entry.file, problems);
  }
  check_port_list(*forward, forward->inputs, entry.inputs, "input", entry.file, problems);
  check_port_list(*forward, forward->outputs, entry.outputs, "output", entry.file, problems);
  std::set<std::string_view> names;
  for (const ManifestProbe& probe : entry.probes) {
    check_value(*forward, probe.value, fmt::format("probe {}", quoted(probe.name)), nullptr,
                nullptr, entry.file, problems);
    if (!names.insert(probe.name).second) {
      problems.add(entry.file, fmt::format("has two probes {}", quoted(probe.name)));
    }
  }
  names.clear();
  for (const ManifestBuffer& buffer : entry.buffers) {
    check_buffer(*forward, buffer, entry.file, problems);
    if (!names.insert(buffer.name).second) {
      problems.add(entry.file, fmt::format("has two buffers {}", quoted(buffer.name)));
    }
  }
}

}  // namespace ferry::packer
