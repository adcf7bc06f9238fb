#include "audit/program_leaves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "audit/component.h"
#include "audit/delegate_graphs.h"
#include "audit/rope_table.h"
#include "audit/tiling.h"
#include "core/checked.h"

namespace ferry::audit {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kMostUses = 4;

Shape to_shape(const std::vector<int32_t>& sizes) { return {sizes.begin(), sizes.end()}; }

uint64_t elements_of(const Shape& shape) {
  return static_cast<uint64_t>(checked_numel(shape).value_or(0));
}

void describe(Leaf& leaf, std::string dtype, Shape shape) {
  leaf.dtype = std::move(dtype);
  leaf.elements = elements_of(shape);
  leaf.shape = std::move(shape);
}

bool is_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

void describe(Leaf& leaf, const GraphConstant& constant) {
  describe(leaf, constant.dtype, constant.shape);
  leaf.use = constant.scales ? kScales : xnnpack::kBackend;
  if (constant.scales) leaf.elements = 0;
}

// A constant or the initial contents of a buffer, as the tensors that share it have it.
struct Stored {
  const pte::Tensor* tensor = nullptr;  // the largest one
  uint64_t bytes = 0;
  std::set<std::string> names = {}, uses = {};
};
using StoredByIndex = std::map<uint32_t, Stored>;

// The constants and buffers of all methods, and which operators read them.
class Contents {
 public:
  explicit Contents(const pte::Program& program) {
    for (const pte::Method& method : program.methods) {
      for (const pte::Value& value : method.values) {
        if (const auto* tensor = std::get_if<pte::Tensor>(&value)) add(*tensor);
      }
      add_uses(method);
    }
  }

  StoredByIndex constants, initial;
  std::set<std::string> external;

 private:
  Stored* find(const pte::Tensor& tensor) {
    if (tensor.external || tensor.data_index == 0) return nullptr;
    return &(tensor.allocation ? initial : constants)[tensor.data_index];
  }

  void add(const pte::Tensor& tensor) {
    if (tensor.external) external.insert(tensor.fqn);
    Stored* const stored = find(tensor);
    if (stored == nullptr) return;
    const uint64_t bytes = pte::tensor_bytes(tensor).value_or(0);
    if (stored->tensor == nullptr || bytes > stored->bytes) {
      stored->tensor = &tensor;
      stored->bytes = bytes;
    }
    if (!tensor.fqn.empty()) stored->names.insert(tensor.fqn);
  }

  void add_uses(const pte::Method& method) {
    for (const pte::Instruction& instruction : method.instructions) {
      if (const auto* call = std::get_if<pte::KernelCall>(&instruction)) {
        const std::string name = method.operators[static_cast<size_t>(call->op)].full_name();
        for (int32_t arg : call->args) add_use(method, arg, name);
      } else if (const auto* delegate = std::get_if<pte::DelegateCall>(&instruction)) {
        const auto& backend = method.delegates[static_cast<size_t>(delegate->delegate)].backend;
        for (int32_t arg : delegate->args) add_use(method, arg, backend);
      }
    }
  }

  void add_use(const pte::Method& method, int32_t index, const std::string& by) {
    const pte::Value& value = method.values[static_cast<size_t>(index)];
    if (const auto* list = std::get_if<pte::TensorList>(&value)) {
      for (int32_t item : list->items) add_use(method, item, by);
    } else if (const auto* tensor = std::get_if<pte::Tensor>(&value)) {
      if (Stored* const stored = find(*tensor)) stored->uses.insert(by);
    }
  }
};

std::string text_of_uses(const std::set<std::string>& uses) {
  std::vector<std::string> shown(uses.begin(), uses.end());
  if (shown.size() <= kMostUses) return fmt::format("{}", fmt::join(shown, ", "));
  shown.resize(kMostUses);
  return fmt::format("{}, and {} more", fmt::join(shown, ", "), uses.size() - kMostUses);
}

class ProgramFile {
 public:
  ProgramFile(const pte::LoadedProgram& loaded, Bytes file, uint32_t index, std::string name)
      : loaded_(loaded), file_(file), index_(index), name_(std::move(name)) {}

  Result<ProgramLeaves> run() {
    const DelegateGraphs graphs = FERRY_TRY(read_delegate_graphs(loaded_, name_));
    claim_program();
    const Contents contents(loaded_.program);
    claim_stored(loaded_.data.constants, contents.constants, LeafKind::kConstant);
    claim_stored(loaded_.data.initial, contents.initial, LeafKind::kBufferInit);
    claim_delegates(graphs);
    claim_named(graphs);
    ProgramLeaves out;
    out.leaves = tile(index_, file_.size(), std::move(claims_), padding_rule(file_.size()));
    out.external_keys = contents.external;
    for (const auto& [key, constant] : graphs.by_key) out.external_keys.insert(key);
    for (const pte::NamedData& named : loaded_.program.named_data) {
      out.external_keys.erase(named.key);
    }
    out.knows_all_keys = graphs.all_read;
    return out;
  }

 private:
  uint64_t offset_of(Bytes range) const {
    return static_cast<uint64_t>(range.data() - file_.data());
  }

  Leaf& claim(uint64_t offset, uint64_t bytes, LeafKind kind, int level) {
    claims_.push_back({Leaf{.offset = offset, .bytes = bytes, .kind = kind}, level});
    return claims_.back().leaf;
  }

  void claim_program() {
    Leaf& leaf = claim(0, loaded_.data.program_bytes, LeafKind::kProgram, 0);
    leaf.name = fmt::format("{}", fmt::join(method_names(), ", "));
    leaf.component = "program";
  }

  std::vector<std::string> method_names() const {
    std::vector<std::string> names;
    for (const pte::Method& method : loaded_.program.methods) {
      if (!method.instructions.empty()) names.push_back(method.name);
    }
    return names;
  }

  void claim_stored(const std::vector<Bytes>& ranges, const StoredByIndex& used, LeafKind kind) {
    for (size_t i = 1; i < ranges.size(); ++i) {
      const auto found = used.find(static_cast<uint32_t>(i));
      if (found == used.end()) {
        claim_unused(ranges, i, kind);
      } else {
        claim_used(ranges[i], found->second, static_cast<uint32_t>(i), kind);
      }
    }
  }

  // Its end is not stated: it is where the next one begins at the latest.
  void claim_unused(const std::vector<Bytes>& ranges, size_t i, LeafKind kind) {
    uint64_t bytes = ranges[i].size();
    for (const Bytes& other : ranges) {
      if (other.size() < ranges[i].size()) bytes = std::min(bytes, ranges[i].size() - other.size());
    }
    Leaf& leaf = claim(offset_of(ranges[i]), bytes, kind, 1);
    leaf.name = fmt::format("{} {}", name_of(kind), i);
    leaf.component = "program";
    leaf.unused = true;
  }

  void claim_used(Bytes range, const Stored& stored, uint32_t i, LeafKind kind) {
    const pte::Tensor& tensor = *stored.tensor;
    Leaf& leaf = claim(offset_of(range), std::min<uint64_t>(stored.bytes, range.size()), kind, 2);
    describe(leaf, std::string(dtype_name(tensor.dtype)), to_shape(tensor.sizes));
    leaf.use = text_of_uses(stored.uses);
    const std::string_view rope = kind == LeafKind::kConstant
                                      ? rope_table(tensor.dtype, leaf.shape, range)
                                      : std::string_view();
    if (!stored.names.empty()) {
      leaf.name = *stored.names.begin();
      leaf.tied.assign(std::next(stored.names.begin()), stored.names.end());
      const Component part = component_of(leaf.name);
      leaf.component = part.name;
      leaf.layer = part.layer;
    } else {
      leaf.name = rope.empty() ? fmt::format("{} {}", name_of(kind), i)
                               : fmt::format("rope.{} {}", rope, i);
      leaf.component = "program";
    }
    if (!rope.empty()) leaf.component = "rope";
    if (kind == LeafKind::kBufferInit && is_zero(range.first(leaf.bytes))) leaf.content = "zero";
  }

  void claim_delegates(const DelegateGraphs& graphs) {
    for (size_t i = 0; i < loaded_.data.delegates.size(); ++i) {
      const Bytes blob = loaded_.data.delegates[i];
      Leaf& leaf = claim(offset_of(blob), blob.size(), LeafKind::kDelegate, 3);
      leaf.name = graphs.backends[i];
      leaf.component = "program";
      if (graphs.graphs[i]) claim_blob_constants(*graphs.graphs[i], offset_of(blob));
    }
  }

  void claim_blob_constants(const xnnpack::Graph& graph, uint64_t blob) {
    const std::vector<GraphConstant> described = describe_constants(graph);
    for (size_t i = 1; i < described.size(); ++i) {
      const xnnpack::Constant& constant = graph.constants[i];
      if (!constant.key.empty()) continue;
      Leaf& leaf = claim(blob + constant.offset, constant.bytes, LeafKind::kConstant, 4);
      leaf.name = fmt::format("{} constant {}", xnnpack::kBackend, i);
      leaf.component = "program";
      describe(leaf, described[i]);
    }
  }

  void claim_named(const DelegateGraphs& graphs) {
    for (const pte::NamedData& named : loaded_.program.named_data) {
      const Bytes data = loaded_.data.named[named.data];
      Leaf& leaf = claim(offset_of(data), data.size(), LeafKind::kConstant, 2);
      leaf.name = named.key;
      const Component part = component_of(named.key);
      leaf.component = part.name;
      leaf.layer = part.layer;
      const auto found = graphs.by_key.find(named.key);
      if (found != graphs.by_key.end()) {
        describe(leaf, found->second);
      } else {
        leaf.unused = graphs.all_read;
      }
    }
  }

  const pte::LoadedProgram& loaded_;
  const Bytes file_;
  const uint32_t index_;
  const std::string name_;
  std::vector<Claim> claims_;
};

Leaf named_leaf(const ptd::NamedTensor& tensor, const ptd::Segment& segment) {
  const Component part = component_of(tensor.key);
  Leaf leaf{.offset = segment.offset,
            .bytes = segment.size,
            .kind = LeafKind::kWeight,
            .name = tensor.key,
            .component = part.name,
            .layer = part.layer};
  if (tensor.is_tensor) {
    describe(leaf, std::string(dtype_name(tensor.dtype)), to_shape(tensor.sizes));
  }
  return leaf;
}

}  // namespace

Result<ProgramLeaves> leaves_of_program(const pte::LoadedProgram& loaded,
                                        std::span<const std::byte> file, uint32_t file_index,
                                        const std::string& name) {
  return ProgramFile(loaded, file, file_index, name).run();
}

std::vector<Leaf> leaves_of_data(const ptd::DataFile& data, uint64_t file_bytes,
                                 uint32_t file_index, std::vector<Leaf> tensors) {
  std::vector<Claim> claims;
  uint64_t first = file_bytes;
  for (size_t i = 0; i < data.segments.size(); ++i) {
    const ptd::Segment& segment = data.segments[i];
    first = std::min(first, segment.offset);
    claims.push_back({Leaf{.offset = segment.offset,
                           .bytes = segment.size,
                           .kind = LeafKind::kOther,
                           .name = fmt::format("segment {}", i),
                           .component = "other",
                           .unused = true},
                      0});
  }
  claims.push_back({Leaf{.offset = 0,
                         .bytes = first,
                         .kind = LeafKind::kHeader,
                         .name = "names and places of tensors",
                         .component = "program"},
                    1});
  if (tensors.empty()) {
    for (const ptd::NamedTensor& tensor : data.tensors) {
      tensors.push_back(named_leaf(tensor, data.segments[tensor.segment]));
    }
  }
  for (Leaf& tensor : tensors) claims.push_back({std::move(tensor), 1});
  std::erase_if(claims, [](const Claim& claim) { return claim.level == 0 && !claim.leaf.bytes; });
  // What is left of a segment by the tensors in it is no name's.
  std::vector<Leaf> leaves =
      tile(file_index, file_bytes, std::move(claims), padding_rule(file_bytes));
  for (Leaf& leaf : leaves) {
    if (leaf.unused) leaf.part = 0;
  }
  return leaves;
}

}  // namespace ferry::audit
