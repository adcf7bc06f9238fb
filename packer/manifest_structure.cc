// check_manifest() checks the manifest alone: names are unique, references between its lists have
// targets, methods of one component fit together. It reads no other file of the bundle.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "core/program_interface.h"
#include "core/text.h"
#include "packer/bundle_examination.h"
#include "packer/digests.h"

namespace ferry::packer {
namespace {

class ManifestCheck {
 public:
  ManifestCheck(const Manifest& manifest, ProblemList& problems)
      : manifest_(manifest), programs_(manifest.programs()), problems_(problems) {
    for (const ManifestProgram* program : programs_) {
      data_files_.insert(program->data_files.begin(), program->data_files.end());
    }
  }

  void run() {
    check_roles();
    check_files();
    check_adapters();
    check_tensors();
    check_places();
    for (const ManifestComponent& component : manifest_.components) {
      check_methods(component);
      check_layers(component);
    }
  }

 private:
  void add(const std::string& what) { problems_.add(std::string(kManifestName), what); }

  void check_roles() {
    std::set<std::string_view> roles;
    for (const ManifestComponent& component : manifest_.components) {
      if (!roles.insert(component.role).second) {
        add(fmt::format("component {} is listed twice", quoted(component.role)));
      }
      if (component.programs.empty()) {
        add(fmt::format("component {} lists no program", quoted(component.role)));
      }
    }
    const bool encodes = manifest_.program_style == kEncoderStyle;
    const std::string_view main = encodes ? kTextEncoderRole : kTextDecoderRole;
    // An audio encoder alone gives the outputs of labels.
    const bool hears = encodes && roles.contains(kAudioEncoderRole);
    if (!roles.contains(main) && !hears) add(fmt::format("lists no component {}", quoted(main)));
  }

  void check_files() {
    std::set<std::string_view> names;
    for (const ManifestFile& file : manifest_.files) {
      if (file.path == kManifestName) add("files lists the manifest itself");
      if (file.path == kSignatureName) add("files lists the signature");
      if (!names.insert(file.path).second) {
        add(fmt::format("files lists {} twice", quoted(file.path)));
      }
    }
    const auto require = [&](const std::string& path, std::string_view role) {
      if (!names.contains(path)) {
        add(fmt::format("{} {} is not among the files", role, quoted(path)));
      }
    };
    std::map<std::string_view, const ManifestProgram*> programs;
    for (const ManifestProgram* program : programs_) {
      require(program->file, "program");
      if (const auto [first, is_new] = programs.emplace(program->file, program); !is_new) {
        check_shared_program(*first->second, *program);
      }
      std::set<std::string_view> data_files;
      for (const std::string& data : program->data_files) {
        require(data, "data file");
        if (!data_files.insert(data).second) {
          add(fmt::format("program {} lists data file {} twice", quoted(program->file),
                          quoted(data)));
        }
      }
    }
    for (std::string_view data : data_files_) {
      if (programs.contains(data)) {
        add(fmt::format("{} is both a program and a data file", quoted(data)));
      }
    }
    if (!manifest_.reference.empty()) require(manifest_.reference, "reference");
    for (const ManifestAdapter& adapter : manifest_.adapters) {
      require(adapter.file, "data file of an adapter");
      if (!programs.contains(adapter.file)) continue;
      add(fmt::format("{} is both a program and an adapter", quoted(adapter.file)));
    }
  }

  // Since version 9 several components may have methods in one program.
  void check_shared_program(const ManifestProgram& first, const ManifestProgram& program) {
    const auto is_of = [&](const ManifestComponent& component) {
      return std::ranges::count(component.programs, program.file, &ManifestProgram::file) > 1;
    };
    if (manifest_.version < kOneProgramManifestVersion ||
        std::ranges::any_of(manifest_.components, is_of)) {
      return add(fmt::format("program {} is listed twice", quoted(program.file)));
    }
    if (first.data_files != program.data_files) {
      add(fmt::format("program {} has other data files in another component",
                      quoted(program.file)));
    }
    for (const ManifestProgram* other : programs_) {
      if (other == &program) break;
      if (other->file != program.file) continue;
      for (const ManifestMethod& method : program.methods) {
        if (std::ranges::count(other->methods, method.name_in_program(),
                               &ManifestMethod::name_in_program) == 0) {
          continue;
        }
        add(fmt::format("method {} of program {} is of two components",
                        quoted(method.name_in_program()), quoted(program.file)));
      }
    }
  }

  // Adapters are listed by name, each once, with the file of its name.
  void check_adapters() {
    if (!manifest_.adapters.empty() && manifest_.no_adapter.empty()) {
      add("lists adapters, but programs take none");
    }
    if (!manifest_.no_adapter.empty() && !data_files_.contains(manifest_.no_adapter)) {
      add(fmt::format("no program loads {}", quoted(manifest_.no_adapter)));
    }
    std::string_view last;
    for (const ManifestAdapter& adapter : manifest_.adapters) {
      if (!is_adapter_name(adapter.name)) {
        add(fmt::format("{} is no name of an adapter", quoted(adapter.name)));
      } else if (adapter.name <= last) {
        add(fmt::format("adapter {} is out of order", quoted(adapter.name)));
      } else if (adapter.file != adapter_file(adapter.name) || data_files_.contains(adapter.file)) {
        add(fmt::format("adapter {} is in {}", quoted(adapter.name), quoted(adapter.file)));
      }
      last = adapter.name;
    }
  }

  void check_tensors() {
    std::set<std::string_view> names;
    for (const ManifestTensor& tensor : manifest_.tensors) {
      if (!names.insert(tensor.name).second) {
        add(fmt::format("tensor {} is listed twice", quoted(tensor.name)));
      }
      if (!data_files_.contains(tensor.file)) {
        add(fmt::format("tensor {} is in {}, which no program loads", quoted(tensor.name),
                        quoted(tensor.file)));
      }
      if (bytes_of(tensor.dtype, tensor.shape) != tensor.bytes) {
        add(fmt::format("tensor {} is {} and has {} bytes", quoted(tensor.name),
                        describe_type(tensor.dtype, tensor.shape), tensor.bytes));
      }
    }
    check_scales();
  }

  // Scales have as many rows as their codes, and are named after them.
  void check_scales() {
    std::unordered_map<std::string, const ManifestTensor*> codes;
    for (const ManifestTensor& tensor : manifest_.tensors) {
      const bool coded = tensor.dtype == DType::kI4 || tensor.dtype == DType::kI8;
      if (tensor.output.empty() && coded) codes.emplace(tensor.name, &tensor);
    }
    for (const ManifestTensor& tensor : manifest_.tensors) {
      if (tensor.output.empty()) continue;
      const std::string ending = "." + tensor.output;
      const bool named = tensor.name.ends_with(ending);
      const auto found =
          codes.find(tensor.name.substr(0, tensor.name.size() - (named ? ending.size() : 0)));
      if (named && found != codes.end() && are_scales_of(*found->second, tensor)) continue;
      add(fmt::format("tensor {} is not the {} of a tensor of codes", quoted(tensor.name),
                      tensor.output));
    }
  }

  static bool are_scales_of(const ManifestTensor& codes, const ManifestTensor& scales) {
    const size_t rank = codes.shape.size();
    if (rank < 2 || (scales.shape.size() != rank && scales.shape.size() != rank - 1)) return false;
    const bool same_rows =
        std::equal(codes.shape.begin(), codes.shape.end() - 1, scales.shape.begin());
    const int64_t groups = scales.shape.size() == rank ? scales.shape.back() : 1;
    return same_rows && groups > 0 && codes.shape.back() % groups == 0;
  }

  // Tensors of a data file are ascending, and share all bytes or none. Each file has the digest
  // method of its kind.
  void check_places() {
    const TensorsByFile tensors = tensors_by_file(manifest_);
    for (const ManifestFile& file : manifest_.files) {
      const bool segmented = data_files_.contains(file.path) && file.path != manifest_.no_adapter;
      if (file.method != (segmented ? kSegmentsDigest : kPlainDigest)) {
        add(fmt::format("file {} has a digest of method {}", quoted(file.path),
                        quoted(file.method)));
      }
      const auto found = tensors.find(file.path);
      if (found != tensors.end() && !segments_of(found->second, file.bytes, nullptr)) {
        add(
            fmt::format("tensors of {} overlap, are out of order or beyond its end, or share a "
                        "place but not a digest",
                        quoted(file.path)));
      }
    }
  }

  // The programs of a component have equal methods, and each method can run through all programs.
  void check_methods(const ManifestComponent& component) {
    for (const ManifestProgram& program : component.programs) {
      check_method_names(program, component.programs.front());
      check_shared_buffers(program);
    }
    if (component.programs.empty()) return;
    for (const ManifestMethod& method : component.programs.front().methods) {
      check_ports(component, method.name);
    }
    if (!is_main(component)) return;
    const bool is_static = manifest_.program_style == kStaticStyle;
    const std::string_view method = is_static ? kKvForwardMethod : kForwardMethod;
    if (component.programs.front().find(method) == nullptr) {
      add(fmt::format("component {} has no method {}", quoted(component.role), method));
    }
  }

  void check_method_names(const ManifestProgram& program, const ManifestProgram& first) {
    if (program.methods.empty()) {
      add(fmt::format("program {} lists no method", quoted(program.file)));
    }
    std::set<std::string_view> names;
    for (const ManifestMethod& method : program.methods) {
      if (method.program_method == method.name) {
        add(fmt::format("method {} of program {} states its own name as another",
                        quoted(method.name), quoted(program.file)));
      }
      if (!names.insert(method.name).second) {
        add(fmt::format("program {} has two methods {}", quoted(program.file),
                        quoted(method.name)));
      }
    }
    if (!std::ranges::equal(program.methods, first.methods, {}, &ManifestMethod::name,
                            &ManifestMethod::name)) {
      add(fmt::format("programs {} and {} do not have the same methods", quoted(first.file),
                      quoted(program.file)));
    }
  }

  // A buffer name stands for one buffer in every method of a program.
  void check_shared_buffers(const ManifestProgram& program) {
    std::unordered_map<std::string_view, const ManifestBuffer*> known;
    for (const ManifestMethod& method : program.methods) {
      for (const ManifestBuffer& buffer : method.buffers) {
        const ManifestBuffer& first = *known.emplace(buffer.name, &buffer).first->second;
        if (first.dtype == buffer.dtype && first.shape == buffer.shape &&
            first.bytes == buffer.bytes && first.init == buffer.init) {
          continue;
        }
        add(fmt::format("buffer {} of program {} differs from method to method",
                        quoted(buffer.name), quoted(program.file)));
      }
    }
  }

  // Earlier programs make the inputs of later ones.
  void check_ports(const ManifestComponent& component, const std::string& name) {
    std::unordered_map<std::string_view, const ManifestPort*> known;
    for (const ManifestProgram& program : component.programs) {
      const ManifestMethod* method = program.find(name);
      if (method == nullptr) return;  // the missing method was reported before
      const bool is_first = &program == &component.programs.front();
      std::set<std::string_view> inputs, outputs;
      for (const ManifestPort& port : method->inputs) {
        check_input(program, *method, port, known, is_first);
        if (!inputs.insert(port.name).second) {
          add(fmt::format("{} has two inputs {}", label(program, *method), quoted(port.name)));
        }
      }
      for (const ManifestPort& port : method->inputs) known.emplace(port.name, &port);
      for (const auto* ports : {&method->inputs, &method->outputs}) {
        for (const ManifestPort& port : *ports) check_encoding(program, *method, port);
      }
      for (const ManifestPort& port : method->outputs) {
        known[port.name] = &port;  // a name stands for the latest value with this name
        if (outputs.insert(port.name).second) continue;
        add(fmt::format("{} has two outputs {}", label(program, *method), quoted(port.name)));
      }
    }
  }

  void check_input(const ManifestProgram& program, const ManifestMethod& method,
                   const ManifestPort& port,
                   const std::unordered_map<std::string_view, const ManifestPort*>& known,
                   bool is_first) {
    const auto found = known.find(port.name);
    if (found == known.end()) {
      if (is_first || is_component_input(port.name)) return;
      add(fmt::format("input {} of {} comes from no earlier program", quoted(port.name),
                      label(program, method)));
      return;
    }
    const ManifestPort& from = *found->second;
    if (port.dtype == from.dtype && port.shape == from.shape) return;
    add(fmt::format("{} takes {} as {}, an earlier program has it as {}", label(program, method),
                    quoted(port.name), describe_type(port.dtype, port.shape),
                    describe_type(from.dtype, from.shape)));
  }

  // Codes have an encoding, and other dtypes have none.
  void check_encoding(const ManifestProgram& program, const ManifestMethod& method,
                      const ManifestPort& port) {
    if (manifest_.version < 3 || !is_encoded(port.dtype)) {
      if (!port.encoding) return;
      add(fmt::format("port {} of {} is {} and has an encoding", quoted(port.name),
                      label(program, method), dtype_name(port.dtype)));
    } else if (!port.encoding || !port.encoding->fits(port.dtype)) {
      add(fmt::format("port {} of {} is {} without an encoding of that dtype", quoted(port.name),
                      label(program, method), dtype_name(port.dtype)));
    }
  }

  // Whether the component has the layers that the manifest counts.
  bool is_main(const ManifestComponent& component) const {
    return component.role == kTextDecoderRole || component.role == kTextEncoderRole ||
           &component == manifest_.main();
  }

  static std::string label(const ManifestProgram& program, const ManifestMethod& method) {
    return fmt::format("method {} of program {}", quoted(method.name), quoted(program.file));
  }

  // The programs of a component hold its layers in order. The programs of the text decoder hold all
  // layers.
  void check_layers(const ManifestComponent& component) {
    int64_t next = 0;
    for (const ManifestProgram& program : component.programs) {
      if (program.layer_count == 0) continue;
      if (program.first_layer != next) {
        add(fmt::format("program {} begins with layer {} where {} is next", quoted(program.file),
                        program.first_layer, next));
      }
      next = int64_t{program.first_layer} + program.layer_count;
    }
    if (is_main(component) && next != manifest_.num_layers) {
      add(fmt::format("the programs end with layer {}, the model has {}", next,
                      manifest_.num_layers));
    }
  }

  const Manifest& manifest_;
  const std::vector<const ManifestProgram*> programs_;
  std::set<std::string_view> data_files_;
  ProblemList& problems_;
};

}  // namespace

void check_manifest(const Manifest& manifest, ProblemList& problems) {
  ManifestCheck(manifest, problems).run();
  check_model(manifest, problems);
}

}  // namespace ferry::packer
