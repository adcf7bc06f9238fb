// BundlePlan::make() plans every byte of every file of a bundle from metadata alone.
#include "packer/bundle_plan.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>
#include <span>

#include "core/file.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "graph/recipe.h"
#include "packer/adapter_file.h"
#include "packer/bundle_examination.h"
#include "packer/bundle_plan_impl.h"
#include "packer/digests.h"

namespace ferry::packer {
namespace {

// The name of a program of all components, without the extension.
constexpr std::string_view kProgramName = "model";

// Returns the name of a program's files without the extension.
std::string part_name(std::string_view role, size_t part, size_t parts) {
  if (role != kTextDecoderRole && parts == 1) return std::string(role);
  const std::string_view stem = role == kTextDecoderRole ? "decoder" : role;
  return fmt::format("{}-{:05}-of-{:05}", stem, part + 1, parts);
}

template <class Port>
std::vector<ManifestPort> manifest_ports(const std::vector<Port>& ports) {
  std::vector<ManifestPort> out;
  for (const Port& port : ports) out.push_back({port.name, port.dtype, port.shape, port.encoding});
  return out;
}

ManifestMethod describe_method(const graph::LoweredMethod& lowered, std::string_view role) {
  ManifestMethod method;
  method.name = lowered.name;
  if (lowered.name == role) {
    method.name = kForwardMethod;
    method.program_method = lowered.name;
  }
  method.inputs = manifest_ports(lowered.inputs);
  method.outputs = manifest_ports(lowered.outputs);
  for (const graph::LoweredProbe& probe : lowered.probes) {
    method.probes.push_back({probe.name, probe.value});
  }
  for (const graph::LoweredBuffer& buffer : lowered.buffers) {
    method.buffers.push_back({buffer.name, buffer.value, buffer.dtype, buffer.shape, buffer.bytes,
                              buffer.initial > 0 ? "stored" : "none"});
  }
  method.activation_bytes = lowered.activation_bytes;
  method.activation_lower_bound = lowered.activation_lower_bound;
  return method;
}

ManifestProgram describe_program(const BundleInput::Part& part, std::string_view role) {
  const graph::LoweredProgram& lowered = *part.lowered;
  ManifestProgram program;
  program.first_layer = part.first_layer;
  program.layer_count = part.layer_count;
  program.backends = backends_of(lowered.program);
  bool has_state = part.methods.empty();
  for (const graph::LoweredMethod& method : lowered.methods) {
    if (!part.methods.empty() && std::ranges::count(part.methods, method.name) == 0) continue;
    program.methods.push_back(describe_method(method, role));
    has_state = has_state || !method.buffers.empty();
  }
  program.state_bytes = has_state ? lowered.state_bytes : 0;
  return program;
}

// Whether values differ from those of the source, because of a cast to fewer bits or of
// quantisation.
bool is_rounded(const graph::Recipe& recipe) {
  if (recipe.is_coded()) return recipe.steps.back().kind == graph::Step::Kind::kQuantize;
  return recipe.output().dtype != DType::kF32 && !recipe.is_copy();
}

class Planner {
 public:
  Planner(BundleInput input, const TensorSource& source) {
    impl_.manifest = std::move(input.manifest);
    impl_.input = std::move(input);
    impl_.source = &source;
    for (const BundleInput::Component& component : impl_.input.components) {
      for (size_t i = 0; i < component.parts.size(); ++i) {
        part_names_.push_back(impl_.input.one_program
                                  ? std::string(kProgramName)
                                  : part_name(component.role, i, component.parts.size()));
        impl_.parts.push_back(&component.parts[i]);
      }
    }
  }

  Status run(uint64_t max_file_bytes) {
    Manifest& manifest = impl_.manifest;
    if (impl_.input.one_program) {
      manifest.version = std::max(manifest.version, kOneProgramManifestVersion);
    }
    manifest.source_files.clear();
    size_t own_files = impl_.source->files().size();
    for (const AdapterInput& adapter : impl_.input.adapters)
      own_files -= adapter.source_files.size();
    for (size_t i = 0; i < own_files; ++i) manifest.source_files.push_back(source_file(i));
    manifest.components.clear();
    manifest.tensors.clear();
    manifest.files.clear();
    placement_ = FERRY_TRY(place_weights(parts(), max_file_bytes));
    for (const WeightPlacement::Stored& stored : placement_.stored) {
      impl_.weights.push_back(stored.recipe);
      impl_.first_segment.push_back(impl_.segments);
      impl_.segments += stored.recipe->outputs.size();
    }
    name_data_files();
    collect_factors();
    for (const BundleInput::Component& component : impl_.input.components) {
      FERRY_RETURN_IF_ERROR(add_component(component));
    }
    FERRY_RETURN_IF_ERROR(add_adapters(max_file_bytes));
    for (const CopiedFile& copied : impl_.input.copied) add_copied(copied);
    return add_manifest();
  }

  std::shared_ptr<const BundlePlan::Impl> finish() {
    return std::make_shared<const BundlePlan::Impl>(std::move(impl_));
  }

 private:
  const std::vector<const BundleInput::Part*>& parts() const { return impl_.parts; }

  // Adds each program, followed by the data files that begin with it.
  Status add_component(const BundleInput::Component& component) {
    impl_.manifest.components.push_back(
        {component.role, {}, component.weight_dtype, component.quantization});
    for (size_t i = 0; i < component.parts.size(); ++i, ++next_part_) {
      FERRY_RETURN_IF_ERROR(add_program(next_part_, component.role));
      for (; next_data_file_ < placement_.files.size() &&
             placement_.files[next_data_file_].part == next_part_;
           ++next_data_file_) {
        add_data_file(next_data_file_);
      }
    }
    return {};
  }

  void name_data_files() {
    std::vector<size_t> files_of_part(parts().size(), 0), seen(parts().size(), 0);
    for (const auto& file : placement_.files) ++files_of_part[file.part];
    for (const auto& file : placement_.files) {
      const std::string& stem = part_names_[file.part];
      const size_t count = files_of_part[file.part];
      data_names_.push_back(
          count == 1 ? stem + ".ptd"
                     : fmt::format("{}.part-{:03}-of-{:03}.ptd", stem, ++seen[file.part], count));
    }
  }

  void add_file(FilePlan file) {
    const bool segmented = file.has_weights && !file.plain_digest;
    impl_.manifest.files.push_back({file.name, file.bytes,
                                    std::string(segmented ? kSegmentsDigest : kPlainDigest),
                                    std::string(kZeroDigest), std::string(kZeroFastDigest)});
    impl_.listing.push_back({file.name, file.bytes});
    impl_.total_bytes += file.bytes;
    impl_.files.push_back(std::move(file));
  }

  static std::string_view piece_name(pte::Piece::Kind kind) {
    switch (kind) {
      case pte::Piece::Kind::kConstant:
        return "constant";
      case pte::Piece::Kind::kInitial:
        return "initial value";
      case pte::Piece::Kind::kDelegate:
        return "delegate data";
      case pte::Piece::Kind::kNamed:
        break;
    }
    return "named data";
  }

  // Returns false if the contents of the piece are unknown. Named data is stored in data files,
  // never in a program.
  static bool add_piece(const graph::LoweredProgram& lowered, const pte::Piece& piece,
                        FilePlan& file) {
    if (piece.kind == pte::Piece::Kind::kNamed) return false;
    if (piece.kind == pte::Piece::Kind::kDelegate) {
      if (piece.index >= lowered.delegates.size()) return false;
      const std::span<const std::byte> blob = lowered.delegates[piece.index];
      file.extents.push_back({Extent::Kind::kBlob, file.blobs.size(), piece.offset, piece.size});
      file.blobs.push_back(blob);
      return blob.size() == piece.size;
    }
    const bool constant = piece.kind == pte::Piece::Kind::kConstant;
    const std::vector<graph::Literal>& literals = constant ? lowered.constants : lowered.initial;
    if (piece.index >= literals.size() || literals[piece.index].bytes != piece.size) return false;
    file.extents.push_back(
        {Extent::Kind::kLiteral, file.literals.size(), piece.offset, piece.size});
    file.literals.push_back(&literals[piece.index]);
    return true;
  }

  Status add_program(size_t part, std::string_view role) {
    const graph::LoweredProgram& lowered = *parts()[part]->lowered;
    ManifestProgram program = describe_program(*parts()[part], role);
    program.file = part_names_[part] + ".pte";
    for (size_t data : placement_.part_files[part]) program.data_files.push_back(data_names_[data]);
    if (!lowered.factors.empty()) program.data_files.emplace_back(kNoAdapterFile);
    impl_.manifest.components.back().programs.push_back(std::move(program));
    const bool is_added = part > 0 && parts()[part]->lowered == parts()[part - 1]->lowered;
    return is_added ? Status() : add_program_file(part_names_[part] + ".pte", lowered);
  }

  Status add_program_file(const std::string& name, const graph::LoweredProgram& lowered) {
    pte::Layout layout = FERRY_TRY(pte::plan_program(lowered.program, lowered.sizes));
    FilePlan file;
    file.name = name;
    file.bytes = layout.file_bytes;
    file.extents.push_back({Extent::Kind::kHead, 0, 0, layout.head.size()});
    file.head = std::move(layout.head);
    for (const pte::Piece& piece : layout.pieces) {
      if (!add_piece(lowered, piece, file)) {
        return fail(ErrorCode::kInternal,
                    fmt::format("{}: {} {} has no contents of {} bytes", file.name,
                                piece_name(piece.kind), piece.index, piece.size));
      }
    }
    add_file(std::move(file));
    return {};
  }

  void add_data_file(size_t index) {
    WeightPlacement::DataFile& data = placement_.files[index];
    FilePlan file;
    file.name = data_names_[index];
    file.bytes = data.layout.file_bytes;
    file.has_weights = true;
    file.extents.push_back({Extent::Kind::kHead, 0, 0, data.layout.head.size()});
    file.head = std::move(data.layout.head);
    size_t segment = 0;
    for (const size_t stored : data.stored) {
      const WeightPlacement::Stored& item = placement_.stored[stored];
      for (size_t output = 0; output < item.recipe->outputs.size(); ++output, ++segment) {
        const ptd::Segment& place = data.layout.segments[segment];
        file.extents.push_back({Extent::Kind::kWeight, stored, place.offset, place.size, output});
        for (const graph::Weight* weight : item.keys) {
          add_tensor(*weight, stored, output, file.name, place);
        }
      }
    }
    add_file(std::move(file));
  }

  void add_tensor(const graph::Weight& weight, size_t stored, size_t output,
                  const std::string& file, const ptd::Segment& place) {
    const graph::RecipeOutput& made = weight.recipe.outputs[output];
    ManifestTensor tensor;
    tensor.name = graph::key_of(weight, output);
    tensor.output = made.name;
    tensor.file = file;
    tensor.dtype = made.dtype;
    tensor.shape = made.shape;
    tensor.offset = place.offset;
    tensor.bytes = place.size;
    tensor.sha256 = kZeroDigest;
    tensor.rounded = is_rounded(weight.recipe);
    tensor.rule = weight.rule;
    std::vector<size_t> entries = stored_entries_of(weight.recipe, *impl_.source);
    for (size_t entry : entries) {
      const TensorEntry& from = impl_.source->entries()[entry];
      tensor.sources.push_back(
          {impl_.source->files()[from.file].name, from.name, std::string(kZeroDigest)});
    }
    tensor.recipe = graph::text_of(weight.recipe, *impl_.source);
    impl_.manifest.tensors.push_back(std::move(tensor));
    impl_.tensor_weight.push_back(stored);
    impl_.tensor_segment.push_back(impl_.first_segment[stored] + output);
    impl_.tensor_entries.push_back(std::move(entries));
  }

  ManifestSourceFile source_file(size_t index) const {
    const SourceFile& file = impl_.source->files()[index];
    return {file.name, file.bytes, std::string(kZeroDigest)};
  }

  // Lists the factors of all programs, each once, in order of first use.
  void collect_factors() {
    std::set<std::string_view> known;
    for (const BundleInput::Part* part : parts()) {
      for (const graph::LoweredFactor& factor : part->lowered->factors) {
        if (known.insert(factor.name).second) factors_.push_back(&factor);
      }
    }
  }

  // Adds the data file of the factors that change nothing, and those of the adapters.
  Status add_adapters(uint64_t max_file_bytes) {
    if (factors_.empty()) return {};
    impl_.manifest.version = std::max(impl_.manifest.version, kAdaptersManifestVersion);
    impl_.manifest.no_adapter = kNoAdapterFile;
    add_file(FERRY_TRY(plan_no_adapter_file(factors_, no_adapter_.content)));
    for (const AdapterInput& adapter : impl_.input.adapters) {
      FERRY_RETURN_IF_ERROR(add_adapter(adapter));
    }
    for (const FilePlan& file : impl_.files) {
      const bool adapts = file.plain_digest || file.name == kNoAdapterFile;
      if (!adapts || max_file_bytes == 0 || file.bytes <= max_file_bytes) continue;
      return fail(ErrorCode::kUsage,
                  fmt::format("{} has {} bytes and cannot be split; a file may have {}", file.name,
                              file.bytes, max_file_bytes));
    }
    return {};
  }

  Status add_adapter(const AdapterInput& adapter) {
    impl_.manifest.adapters.push_back(describe_adapter(adapter, *impl_.source));
    add_file(FERRY_TRY(
        plan_adapter_file(adapter, no_adapter_.content.tensors, impl_, impl_.adapter_weights)));
    return {};
  }

  void add_copied(const CopiedFile& copied) {
    FilePlan file;
    file.name = copied.name;
    if (copied.text) {
      const auto bytes = std::as_bytes(std::span(*copied.text));
      file.bytes = bytes.size();
      file.extents.push_back({Extent::Kind::kHead, 0, 0, file.bytes});
      file.head.assign(bytes.begin(), bytes.end());
      add_file(std::move(file));
      return;
    }
    file.bytes = copied.file->size();
    file.extents.push_back({Extent::Kind::kCopy, impl_.copied.size(), 0, file.bytes});
    impl_.copied.push_back(copied.file);
    add_file(std::move(file));
  }

  // Applies the checks of bundles to the plan before anything is written.
  Status check_structure() const {
    ProblemList problems("plan");
    check_manifest(impl_.manifest, problems);
    std::map<std::string, BundleData> data;
    for (size_t i = 0; i < placement_.files.size(); ++i) {
      const WeightPlacement::DataFile& file = placement_.files[i];
      BundleData& planned = data[data_names_[i]];
      planned.content = {file.tensors, file.layout.segments};
      check_data_file(impl_.manifest, data_names_[i], planned.content, problems);
    }
    if (!factors_.empty()) data[std::string(kNoAdapterFile)].content = no_adapter_.content;
    const std::vector<const ManifestProgram*> programs = impl_.manifest.programs();
    for (size_t part = 0; part < parts().size(); ++part) {
      check_program(*programs[part], parts()[part]->lowered->program, data, problems);
    }
    if (problems.empty()) return {};
    Error error{ErrorCode::kInternal, "the planned bundle contradicts itself"};
    for (const CheckProblem& problem : problems.take()) error.details.push_back(problem.message);
    return Failure(std::move(error));
  }

  // Adds the manifest with zeros for digests. The final text has an equal size, because the length
  // of digests is fixed.
  Status add_manifest() {
    const std::string name(kManifestName);
    std::set<std::string_view> names = {kManifestName};
    for (const ManifestFile& file : impl_.manifest.files) {
      if (!names.insert(file.path).second) {
        return fail(ErrorCode::kUsage,
                    fmt::format("two files of the bundle would be named {}", quoted(file.path)));
      }
    }
    const std::string text = write_manifest(impl_.manifest);
    auto again = read_manifest(text, name);
    if (!again) {
      return fail(ErrorCode::kInternal,
                  "the planned manifest cannot be read: " + again.error().message);
    }
    FERRY_RETURN_IF_ERROR(check_structure());
    impl_.listing.push_back({name, text.size()});
    impl_.total_bytes += text.size();
    return {};
  }

  BundlePlan::Impl impl_;
  WeightPlacement placement_;
  std::vector<const graph::LoweredFactor*> factors_;
  BundleData no_adapter_;  // what the file of this name will hold
  std::vector<std::string> part_names_, data_names_;
  size_t next_part_ = 0, next_data_file_ = 0;
};

}  // namespace

Result<BundlePlan> BundlePlan::make(BundleInput input, const TensorSource& source,
                                    uint64_t max_file_bytes) {
  Planner planner(std::move(input), source);
  FERRY_RETURN_IF_ERROR(planner.run(max_file_bytes));
  BundlePlan plan;
  plan.impl_ = planner.finish();
  return plan;
}

const std::vector<PlannedFile>& BundlePlan::files() const { return impl_->listing; }
uint64_t BundlePlan::total_bytes() const { return impl_->total_bytes; }
const Manifest& BundlePlan::manifest() const { return impl_->manifest; }

const pte::Program& BundlePlan::program(size_t index) const {
  return impl_->parts[index]->lowered->program;
}
const std::vector<graph::Literal>& BundlePlan::constants(size_t index) const {
  return impl_->parts[index]->lowered->constants;
}

void BundlePlan::read_program(size_t index, uint64_t offset, std::span<std::byte> out) const {
  const auto file =
      std::ranges::find(impl_->files, impl_->manifest.programs()[index]->file, &FilePlan::name);
  std::ranges::fill(out, std::byte{0});
  for (const Extent& extent : file->extents) {
    const uint64_t begin = std::max(offset, extent.offset);
    const uint64_t end = std::min(offset + out.size(), extent.offset + extent.bytes);
    if (begin >= end) continue;
    const std::span<std::byte> part = out.subspan(begin - offset, end - begin);
    const auto skip = static_cast<std::ptrdiff_t>(begin - extent.offset);
    if (extent.kind == Extent::Kind::kLiteral) {
      file->literals[extent.index]->fill(begin - extent.offset, part);
    } else if (extent.kind == Extent::Kind::kBlob) {
      std::copy_n(file->blobs[extent.index].begin() + skip, part.size(), part.begin());
    } else {  // programs have only a head, literals and blobs
      std::copy_n(file->head.begin() + skip, part.size(), part.begin());
    }
  }
}

}  // namespace ferry::packer
