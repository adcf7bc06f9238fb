#include "listing/listing.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/result.h"
#include "core/text.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/bundled.h"
#include "formats/pte/program.h"
#include "formats/pte/reader.h"
#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/reader.h"
#include "listing/native_package.h"
#include "packer/bundle_reader.h"

namespace ferry::listing {
namespace {

Shape shape_of(const std::vector<uint32_t>& dims) { return {dims.begin(), dims.end()}; }

// Describes the constants of a graph from the values that use them.
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

// Lists the delegates of each method. Blobs of other backends are listed with their size only. A
// well-formed blob of XnnpackBackend that Ferry does not support is listed with the reason.
// kBadInput for a malformed blob and for a blob that does not fit its calls. `name` begins the
// messages.
Result<std::vector<std::vector<ListedDelegate>>> list_delegates(const pte::LoadedProgram& loaded,
                                                                const std::string& name) {
  Lister lister(loaded, name);
  std::vector<std::vector<ListedDelegate>> out;
  for (const pte::Method& method : loaded.program.methods) {
    out.push_back(FERRY_TRY(lister.list(method)));
  }
  return out;
}

Shape to_shape(const std::vector<int32_t>& sizes) { return {sizes.begin(), sizes.end()}; }

// Describes a tensor that is stored in the file as plain values.
ListedTensor plain_tensor(const std::string& name, DType dtype, Shape shape, uint64_t bytes,
                          const std::string& file = {}) {
  return {name, dtype, std::move(shape), bytes, file, std::string(dtype_name(dtype)), bytes};
}

// Describes data that only a delegate can read.
ListedTensor delegate_data(const std::string& name, uint64_t bytes) {
  ListedTensor listed{.name = name, .bytes = bytes};
  listed.stored = "bytes";
  listed.stored_bytes = bytes;
  listed.is_tensor = false;
  return listed;
}

// Position of the bytes of a tensor.
struct Place {
  std::string file;
  uint64_t offset = 0;
  bool known = true;
};

// Marks tensors whose bytes are those of an earlier tensor. `places` has one element per tensor.
void mark_shared(std::vector<ListedTensor>& tensors, const std::vector<Place>& places) {
  std::map<std::tuple<std::string_view, uint64_t, uint64_t>, const std::string*> first;
  for (size_t i = 0; i < tensors.size(); ++i) {
    ListedTensor& tensor = tensors[i];
    if (tensor.stored_bytes == 0 || !places[i].known) continue;
    const auto [at, fresh] = first.emplace(
        std::tuple(std::string_view(places[i].file), places[i].offset, tensor.stored_bytes),
        &tensor.name);
    if (!fresh) tensor.shares = *at->second;
  }
}

// -- programs

struct KindName {
  std::string operator()(const pte::None&) const { return "none"; }
  std::string operator()(int64_t) const { return "int"; }
  std::string operator()(bool) const { return "bool"; }
  std::string operator()(double) const { return "double"; }
  std::string operator()(const pte::Tensor& t) const { return std::string(dtype_name(t.dtype)); }
  std::string operator()(const std::string&) const { return "string"; }
  template <class List>
  std::string operator()(const List&) const {
    return "list";
  }
};

ListedValue list_value(const pte::Value& value) {
  ListedValue listed;
  listed.kind = std::visit(KindName{}, value);
  if (const auto* tensor = std::get_if<pte::Tensor>(&value)) {
    listed.name = tensor->fqn;
    listed.shape = to_shape(tensor->sizes);
    listed.dynamic = tensor->dynamism != pte::Dynamism::kStatic;
    listed.bytes = pte::tensor_bytes(*tensor).value_or(0);
    listed.stored = tensor->data_index > 0;
  }
  return listed;
}

void list_tensors(const pte::Method& method, ListedMethod& listed, ListedProgram& program,
                  std::set<std::string>& seen) {
  std::map<uint32_t, uint64_t> constants;
  const pte::StateFinder state(method);
  for (size_t i = 0; i < method.values.size(); ++i) {
    const pte::Value& value = method.values[i];
    const auto* t = std::get_if<pte::Tensor>(&value);
    if (t == nullptr) continue;
    const uint64_t bytes = pte::tensor_bytes(*t).value_or(0);
    if (t->external) {
      if (seen.insert(t->fqn).second) {
        program.external.push_back(plain_tensor(t->fqn, t->dtype, to_shape(t->sizes), bytes));
      }
    } else if (t->allocation &&
               (t->data_index > 0 || state.values().contains(static_cast<int32_t>(i)))) {
      listed.buffers.push_back(list_value(value));
    } else if (t->data_index > 0) {
      constants[t->data_index] = bytes;
    }
  }
  listed.constants = constants.size();
  for (const auto& [index, bytes] : constants) listed.constant_bytes += bytes;
}

ListedMethod list_method(const pte::Method& method, ListedProgram& program,
                         std::set<std::string>& seen) {
  ListedMethod listed;
  listed.name = method.name;
  for (int32_t i : method.inputs) {
    listed.inputs.push_back(list_value(method.values[static_cast<size_t>(i)]));
  }
  for (int32_t i : method.outputs) {
    listed.outputs.push_back(list_value(method.values[static_cast<size_t>(i)]));
  }
  std::map<std::string, size_t> counts;
  for (const pte::Instruction& instruction : method.instructions) {
    const auto* call = std::get_if<pte::KernelCall>(&instruction);
    if (call != nullptr) ++counts[method.operators[static_cast<size_t>(call->op)].full_name()];
  }
  listed.operators.assign(counts.begin(), counts.end());
  listed.instructions = method.instructions.size();
  if (!method.memory_bytes.empty()) {
    listed.planned_bytes.assign(method.memory_bytes.begin() + 1, method.memory_bytes.end());
  }
  list_tensors(method, listed, program, seen);
  return listed;
}

void list_named_data(const pte::LoadedProgram& loaded, ListedProgram& program) {
  std::vector<Place> places;
  for (const pte::NamedData& named : loaded.program.named_data) {
    program.named.push_back(delegate_data(named.key, loaded.data.named[named.data].size()));
    places.push_back({"", named.data});
  }
  mark_shared(program.named, places);
}

// Lists the constants of delegates that are not in the program file.
void list_external_data(const ListedMethod& method, ListedProgram& program,
                        std::set<std::string>& seen) {
  for (const ListedDelegate& delegate : method.delegates) {
    for (const ListedConstant& constant : delegate.constants) {
      if (constant.key.empty() || !seen.insert(constant.key).second) continue;
      program.external.push_back(delegate_data(constant.key, constant.bytes));
    }
  }
}

Result<ListedProgram> list_program(const pte::LoadedProgram& loaded, const std::string& file,
                                   const std::string& name) {
  ListedProgram program;
  program.file = file;
  program.program_bytes = loaded.data.program_bytes;
  program.constant_bytes = loaded.data.constant_bytes;
  program.initial_bytes = loaded.data.initial_bytes;
  program.delegate_bytes = loaded.data.delegate_bytes;
  program.named_bytes = loaded.data.named_bytes;
  auto delegates = FERRY_TRY(list_delegates(loaded, name));
  std::set<std::string> seen;
  for (const pte::Method& method : loaded.program.methods) {
    program.methods.push_back(list_method(method, program, seen));
    program.methods.back().delegates = std::move(delegates[program.methods.size() - 1]);
  }
  list_named_data(loaded, program);
  std::set<std::string> keys;
  for (const ListedTensor& named : program.named) keys.insert(named.name);
  for (const ListedMethod& method : program.methods) list_external_data(method, program, keys);
  return program;
}

// -- kinds of files

Result<Listing> list_program_file(const InputFile& input) {
  if (FERRY_TRY(is_native_package(input))) return list_native_package(input);
  const std::string& path = input.path();
  const MappedFile file = FERRY_TRY(MappedFile::map(input));
  const pte::LoadedProgram loaded = FERRY_TRY(pte::read_any_program(file.bytes(), printable(path)));
  Listing listing{.kind = "program", .path = path};
  listing.files.push_back({base_name(path), file.bytes().size()});
  ListedProgram& program = listing.programs.emplace_back(
      FERRY_TRY(list_program(loaded, base_name(path), printable(path))));
  if (!pte::is_bundled(file.bytes())) return listing;
  const pte::BundledProgram bundled = FERRY_TRY(pte::read_bundled(file.bytes(), printable(path)));
  for (const pte::TestSuite& suite : bundled.suites) {
    program.test_cases.emplace_back(suite.method, suite.cases.size());
  }
  return listing;
}

Result<Listing> list_data_file(const InputFile& input) {
  const std::string& path = input.path();
  const MappedFile file = FERRY_TRY(MappedFile::map(input));
  const ptd::DataFile data = FERRY_TRY(ptd::read_data_file(file.bytes(), printable(path)));
  Listing listing{.kind = "data", .path = path};
  listing.files.push_back({base_name(path), file.bytes().size()});
  std::vector<Place> places;
  for (const ptd::NamedTensor& t : data.tensors) {
    const ptd::Segment& segment = data.segments[t.segment];
    listing.tensors.push_back(t.is_tensor
                                  ? plain_tensor(t.key, t.dtype, to_shape(t.sizes), segment.size)
                                  : delegate_data(t.key, segment.size));
    places.push_back({"", segment.offset});
  }
  mark_shared(listing.tensors, places);
  return listing;
}

Result<Listing> list_bundle(const std::string& path, ThreadPool& pool) {
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open(path, /*check_digests=*/false, pool));
  const packer::Manifest& manifest = bundle.manifest();
  Listing listing{.kind = "bundle",
                  .path = path,
                  .model_type = manifest.model_type,
                  .tool = manifest.tool.name,
                  .tool_version = manifest.tool.version};
  for (const packer::ManifestOption& option : manifest.options)
    listing.options.emplace_back(option.name, option.value);
  for (const packer::ManifestFile& file : manifest.files)
    listing.files.push_back({file.path, file.bytes});
  std::vector<Place> places;
  std::map<std::string_view, Place> place_of;
  for (const packer::ManifestTensor& t : manifest.tensors) {
    listing.tensors.push_back(plain_tensor(t.name, t.dtype, t.shape, t.bytes, t.file));
    places.push_back({t.file, t.offset});
    place_of[t.name] = places.back();
  }
  mark_shared(listing.tensors, places);
  if (const auto factors = bundle.data().find(manifest.no_adapter);
      factors != bundle.data().end()) {
    const ptd::DataFile& content = factors->second.content;
    for (const ptd::NamedTensor& t : content.tensors) {
      place_of[t.key] = {manifest.no_adapter, content.segments[t.segment].offset};
    }
  }
  std::set<std::string_view> seen;  // components may share a program
  for (size_t i = 0; i < bundle.programs().size(); ++i) {
    const std::string& file = bundle.entry(i).file;
    if (!seen.insert(file).second) continue;
    listing.programs.push_back(
        FERRY_TRY(list_program(bundle.programs()[i].loaded, file, printable(path + "/" + file))));
    std::vector<ListedTensor>& external = listing.programs.back().external;
    places.clear();
    for (const ListedTensor& tensor : external) places.push_back(place_of[tensor.name]);
    mark_shared(external, places);
  }
  return listing;
}

Result<Listing> list_checkpoint(const std::string& path) {
  const std::unique_ptr<TensorSource> source = FERRY_TRY(checkpoint::open_tensors(path));
  Listing listing{.kind = "checkpoint", .path = path};
  for (const SourceFile& file : source->files()) listing.files.push_back({file.name, file.bytes});
  const bool several = listing.files.size() > 1;
  listing.tensors.reserve(source->entries().size());
  std::vector<Place> places;
  for (const TensorEntry& entry : source->entries()) {
    const std::string& file = source->files()[entry.file].name;
    const uint64_t bytes = static_cast<uint64_t>(checked_numel(entry.shape).value_or(0)) *
                           static_cast<uint64_t>(dtype_bits(entry.dtype)) / 8;
    std::string stored(entry.form());
    if (!entry.filters.empty()) stored += " " + entry.filters;
    listing.tensors.push_back({entry.name, entry.dtype, entry.shape, bytes, several ? file : "",
                               std::move(stored), entry.stored_bytes()});
    // A dataset of HDF5 may have no place in the file.
    places.push_back({file, entry.offset, entry.offset != 0});
  }
  mark_shared(listing.tensors, places);
  return listing;
}

// Returns the FlatBuffer identifier of a regular file, to recognise programs and data files under
// other names.
Result<std::string> file_identifier(const InputFile& file) {
  char bytes[8] = {};
  if (file.size() < sizeof bytes) return std::string();
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(bytes))));
  return std::string(bytes + 4, 4);
}

// Whether the folder holds programs, and so is a bundle that lost its manifest.
bool has_programs(const std::string& directory) {
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::end(entry); entry.increment(error)) {
    if (entry->path().extension() == ".pte") return true;
  }
  return false;
}

}  // namespace

std::string_view kind_name(PathKind kind) {
  constexpr std::string_view kNames[] = {"bundle", "checkpoint", "program", "data"};
  return kNames[static_cast<size_t>(kind)];
}

Result<PathKind> kind_of_path(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const bool bundle = std::filesystem::exists(path + "/manifest.json", ignored) ||
                        (has_programs(path) && !checkpoint::has_checkpoint(path));
    return bundle ? PathKind::kBundle : PathKind::kTensors;
  }
  if (!std::filesystem::exists(path, ignored)) return PathKind::kTensors;
  if (path.ends_with(".pte") || path.ends_with(".bpte") || path.ends_with(".ptn")) {
    return PathKind::kProgram;
  }
  if (path.ends_with(".ptd")) return PathKind::kData;
  // Programs and data files under other names are known by the identifier of their FlatBuffer.
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (FERRY_TRY(is_native_package(file))) return PathKind::kProgram;
  const std::string identifier = FERRY_TRY(file_identifier(file));
  if (identifier == "ET12" || identifier == "BP08") return PathKind::kProgram;
  return identifier == "FT01" ? PathKind::kData : PathKind::kTensors;
}

Result<Listing> list_path(const std::string& path, ThreadPool& pool) {
  switch (FERRY_TRY(kind_of_path(path))) {
    case PathKind::kBundle:
      return list_bundle(path, pool);
    case PathKind::kProgram:
      return list_program_file(FERRY_TRY(InputFile::open(path)));
    case PathKind::kData:
      return list_data_file(FERRY_TRY(InputFile::open(path)));
    case PathKind::kTensors:
      break;
  }
  return list_checkpoint(path);
}

}  // namespace ferry::listing
