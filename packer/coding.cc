#include "packer/coding.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "formats/xnnpack/calls.h"
#include "packer/loose_programs.h"

namespace ferry::packer {
namespace {

// Tables from which programs look up rows: token embeddings, learned position embeddings, and the
// embeddings that Gemma 3n adds in each layer.
constexpr std::string_view kTables[] = {"tok_embeddings.weight", "position_embeddings.weight",
                                        "layer_inputs.embeddings.weight"};
constexpr int64_t kSmallGroup = 32;

// Floors of a plain model, and of a model with the delta rule, whose gated norm divides by small
// numbers. They are at least 5 dB below measurements on the golden checkpoints; docs/verifying.md
// has the table.
struct Floor {
  double plain, delta_rule;
  double of(bool has_delta_rule) const { return has_delta_rule ? delta_rule : plain; }
};
constexpr Floor kDynamic = {20, 5}, kEightBits = {17, 4};
constexpr Floor kFourBitsSmallGroup = {5, 1}, kFourBits = {3, -1};
// At 0 dB and below, the outputs of such a bundle can only be compared with those of its own
// weights.
constexpr Floor kTableOfFourBits = {3, -3};

std::set<std::string> files_of(const Bundle& bundle, std::span<const std::string_view> roles) {
  std::set<std::string> files;
  for (const std::string_view role : roles) {
    const ManifestComponent* component = bundle.manifest().find(role);
    if (component == nullptr) continue;
    for (const ManifestProgram& program : component->programs) {
      files.insert(program.data_files.begin(), program.data_files.end());
    }
  }
  return files;
}

// Returns the number of columns of codes that share a scale.
int64_t group_of(const ManifestTensor& codes, const packer::Manifest& manifest) {
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.output.empty() || tensor.name != codes.name + "." + tensor.output) continue;
    const bool one = tensor.shape.size() < codes.shape.size();
    return one ? 0 : codes.shape.back() / tensor.shape.back();
  }
  return 0;
}

void add_matrix(Coding& coding, int bits, int64_t group) {
  const bool coarser = coding.bits == 0 || bits < coding.bits;
  const bool same = bits == coding.bits;
  if (coarser || (same && (group == 0 || (coding.group != 0 && group > coding.group)))) {
    coding.group = group;
  }
  if (coarser) coding.bits = bits;
}

// -- programs without a manifest

// Operators that read codes of weights.
constexpr struct {
  std::string_view name;
  int table_bits, bits;
} kCodedOperators[] = {
    {"quantized_decomposed::embedding_byte.out", 8, 0},
    {"quantized_decomposed::embedding_byte.dtype_out", 8, 0},
    {"quantized_decomposed::embedding_4bit.out", 4, 0},
    {"quantized_decomposed::embedding_4bit.dtype_out", 4, 0},
    {"quantized_decomposed::embedding_2bit.out", 2, 0},
    {"quantized_decomposed::embedding_2bit.dtype_out", 2, 0},
    {"quantized_decomposed::mixed_linear.out", 0, 8},
    {"quantized_decomposed::mixed_mm.out", 0, 8},
    {"quantized_decomposed::dequantize_per_channel.out", 0, 8},
    {"torchao::dequantize_affine.out", 0, 8},
};

void add_operators(const pte::Method& method, Coding& coding) {
  for (const pte::Operator& op : method.operators) {
    const std::string name = op.full_name();
    for (const auto& row : kCodedOperators) {
      if (name != row.name) continue;
      if (row.bits > 0) add_matrix(coding, row.bits, 0);
      if (row.table_bits == 0) continue;
      coding.table_bits =
          coding.table_bits == 0 ? row.table_bits : std::min(coding.table_bits, row.table_bits);
    }
  }
}

void add_graph(const xnnpack::Graph& graph, Coding& coding) {
  const auto value_of = [&](uint32_t id) {
    return std::ranges::find(graph.values, id, &xnnpack::Value::id);
  };
  for (const xnnpack::Node& node : graph.nodes) {
    if (node.kind != xnnpack::NodeKind::kFullyConnected) continue;
    const auto rows = value_of(node.inputs[0]), filter = value_of(node.inputs[1]);
    if (rows == graph.values.end() || filter == graph.values.end()) continue;
    const auto* groups = std::get_if<xnnpack::PerChannelGroup>(&filter->quantization);
    const bool four = filter->datatype == xnnpack::Datatype::kQCInt4 || groups != nullptr;
    const bool eight = filter->datatype == xnnpack::Datatype::kQCInt8 ||
                       filter->datatype == xnnpack::Datatype::kQInt8;
    if (!four && !eight) continue;
    add_matrix(coding, four ? 4 : 8, groups == nullptr ? 0 : groups->group_size);
    coding.dynamic = coding.dynamic || rows->datatype != xnnpack::Datatype::kF32;
  }
}

// Programs of other tools have weights of any name, so what reads the weights tells how they are
// coded.
Coding loose_coding_of(const Bundle& bundle, std::span<const std::string_view> roles) {
  Coding coding;
  for (const std::string_view role : roles) {
    for (const size_t index : bundle.programs_of(role)) {
      const pte::LoadedProgram& loaded = bundle.programs()[index].loaded;
      for (const pte::Method& method : loaded.program.methods) add_operators(method, coding);
      const auto graphs = xnnpack::read_blobs(loaded, {});
      if (!graphs) continue;  // such a program cannot be executed
      for (const auto& graph : *graphs) {
        if (graph) add_graph(*graph, coding);
      }
    }
  }
  return coding;
}

Floor matrix_floor(const Coding& coding) {
  if (coding.bits == 8) return kEightBits;
  return coding.group != 0 && coding.group <= kSmallGroup ? kFourBitsSmallGroup : kFourBits;
}

}  // namespace

bool is_embedding_table(std::string_view name) {
  return std::ranges::any_of(kTables,
                             [&](std::string_view table) { return name.ends_with(table); });
}

std::set<std::string> tensor_keys(const Bundle& bundle) {
  std::set<std::string> keys;
  for (const auto& [name, data] : bundle.data()) {
    for (const ptd::NamedTensor& tensor : data.content.tensors) {
      if (tensor.is_tensor) keys.insert(tensor.key);
    }
  }
  return keys;
}

std::optional<Coding> coding_of(const Bundle& bundle, std::span<const std::string_view> roles) {
  const Manifest& manifest = bundle.manifest();
  if (is_loose(bundle)) {
    const Coding coding = loose_coding_of(bundle, roles);
    return coding == Coding{} ? std::nullopt : std::optional(coding);
  }
  const std::set<std::string> files = files_of(bundle, roles), tensors = tensor_keys(bundle);
  Coding coding;
  for (const ManifestTensor& tensor : manifest.tensors) {
    const bool coded = tensor.dtype == DType::kI4 || tensor.dtype == DType::kI8;
    if (!coded || !tensor.output.empty() || !files.contains(tensor.file)) continue;
    const int bits = dtype_bits(tensor.dtype);
    if (is_embedding_table(tensor.name)) {
      coding.table_bits = bits;
      continue;
    }
    add_matrix(coding, bits, group_of(tensor, manifest));
    coding.dynamic = coding.dynamic || !tensors.contains(tensor.name);
  }
  return coding == Coding{} ? std::nullopt : std::optional(coding);
}

std::string name_of(const Coding& coding) {
  std::string name;
  if (coding.bits > 0) {
    name = coding.dynamic ? fmt::format("8da{}w", coding.bits) : fmt::format("int{}", coding.bits);
    if (coding.group > 0) name += fmt::format("-g{}", coding.group);
  }
  if (coding.table_bits == 0) return name;
  return name + fmt::format("{}embedding {}", name.empty() ? "" : ", ", coding.table_bits);
}

double coded_floor_db(const Coding& coding, bool delta_rule) {
  double floor = kEightBits.of(delta_rule);
  if (coding.bits > 0) floor = std::min(floor, matrix_floor(coding).of(delta_rule));
  if (coding.table_bits == 4) floor = std::min(floor, kTableOfFourBits.of(delta_rule));
  return floor;
}

std::optional<double> activation_floor_db(const Coding& coding, bool delta_rule) {
  if (!coding.dynamic) return std::nullopt;
  return kDynamic.of(delta_rule);
}

}  // namespace ferry::packer
