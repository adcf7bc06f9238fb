#include "audit/program_leaves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "audit/audit.h"
#include "audit/component.h"
#include "audit/leaf.h"
#include "audit/rope_table.h"
#include "core/checked.h"
#include "core/dtype.h"
#include "core/result.h"
#include "formats/pte/program.h"
#include "formats/pte/reader.h"
#include "formats/xnnpack/calls.h"
#include "formats/xnnpack/graph.h"
#include "formats/xnnpack/reader.h"

namespace ferry::audit {
namespace {

// Facts that the graph of a delegate states about one of its constants.
struct GraphConstant {
  std::string dtype;  // XNNPACK datatype such as "qbint4"; empty if no value uses the constant
  Shape shape;
  bool scales = false;
};
// Element i of the result describes graph.constants[i].
std::vector<GraphConstant> describe_constants(const xnnpack::Graph& graph);

struct DelegateGraphs {
  // [i] is the graph of ProgramData::delegates[i]; nullopt if its backend or contents are not
  // supported.
  std::vector<std::optional<xnnpack::Graph>> graphs;
  std::vector<std::string> backends;            // [i] is the backend of ProgramData::delegates[i]
  std::map<std::string, GraphConstant> by_key;  // constants in named data and data files
  bool all_read = true;
};
// Returns kBadInput if a blob of XnnpackBackend is malformed, or its inputs and outputs do not fit
// the calls. Error messages begin with `name`.
Result<DelegateGraphs> read_delegate_graphs(const pte::LoadedProgram& loaded,
                                            const std::string& name);

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

// A constant, or the initial contents of a buffer, with facts of all tensors that share its bytes.
struct Stored {
  const pte::Tensor* tensor = nullptr;  // the largest of these tensors
  uint64_t bytes = 0;
  std::set<std::string> names = {}, uses = {};
};
using StoredByIndex = std::map<uint32_t, Stored>;

// Collects the constants and buffers of all methods, and the operators that read them.
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

  // Only tensors state where a constant ends. Without a tensor, the constant ends where the next
  // one begins.
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

// Leaves out.graphs[blob] empty if the blob is well formed but not supported.
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

AuditedBuffer buffer_of(const pte::Tensor& tensor, uint32_t file) {
  return {.file = file,
          .name = tensor.fqn,
          .dtype = tensor.dtype,
          .shape = {tensor.sizes.begin(), tensor.sizes.end()},
          .bytes = pte::tensor_bytes(tensor).value_or(0),
          .stored = tensor.data_index > 0};
}

// Adds up, over all files, the largest value of a file's methods, because the methods of a file
// share memory.
uint64_t sum_of_largest(const std::vector<AuditedMethod>& methods,
                        uint64_t AuditedMethod::*member) {
  std::map<uint32_t, uint64_t> largest;
  for (const AuditedMethod& method : methods) {
    largest[method.file] = std::max(largest[method.file], method.*member);
  }
  uint64_t sum = 0;
  for (const auto& [file, bytes] : largest) sum += bytes;
  return sum;
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
  // Ranges of a segment that no tensor covers are leaves of their own, not parts of a tensor.
  std::vector<Leaf> leaves =
      tile(file_index, file_bytes, std::move(claims), padding_rule(file_bytes));
  for (Leaf& leaf : leaves) {
    if (leaf.unused) leaf.part = 0;
  }
  return leaves;
}

uint64_t Memory::activation_bytes() const {
  return sum_of_largest(methods, &AuditedMethod::activation_bytes);
}
uint64_t Memory::state_bytes() const {
  return sum_of_largest(methods, &AuditedMethod::state_bytes);
}

void add_memory(const pte::Program& program, uint32_t file_index, Memory& memory) {
  // Memory and offset of each buffer found so far. Methods may share buffers.
  std::set<std::pair<uint32_t, uint64_t>> places;
  for (const pte::Method& method : program.methods) {
    if (method.instructions.empty()) continue;
    const pte::StateFinder state(method);
    std::set<std::pair<uint32_t, uint64_t>> own;
    uint64_t state_bytes = 0;
    for (size_t i = 0; i < method.values.size(); ++i) {
      const auto* tensor = std::get_if<pte::Tensor>(&method.values[i]);
      if (tensor == nullptr || !tensor->allocation || tensor->external) continue;
      if (tensor->data_index == 0 && !state.values().contains(static_cast<int32_t>(i))) continue;
      const std::pair place(tensor->allocation->memory, tensor->allocation->offset);
      if (!own.insert(place).second) continue;
      state_bytes += pte::tensor_bytes(*tensor).value_or(0);
      if (places.insert(place).second) memory.buffers.push_back(buffer_of(*tensor, file_index));
    }
    const uint64_t planned =
        std::accumulate(method.memory_bytes.begin(), method.memory_bytes.end(), uint64_t{0});
    memory.methods.push_back({.file = file_index,
                              .name = method.name,
                              .activation_bytes = planned - std::min(planned, state_bytes),
                              .state_bytes = state_bytes});
  }
}

}  // namespace ferry::audit
