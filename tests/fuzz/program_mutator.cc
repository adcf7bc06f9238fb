// Parses a .pte file, changes one thing of a method (a number, a size, a dtype, an argument, an
// operator, a jump) or of the graph of a delegate (a node, a shape, an id), and writes the program
// again if it is still valid. Sometimes it changes the bytes of the file instead.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <variant>
#include <vector>

#include "formats/pte/reader.h"
#include "formats/pte/writer.h"
#include "formats/xnnpack/reader.h"
#include "formats/xnnpack/writer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace ferry;

constexpr int kTries = 16;  // most changes make a program invalid

using Random = std::minstd_rand;

size_t below(Random& random, size_t end) { return end == 0 ? 0 : random() % end; }

// Returns a number near `n`, or a number that often breaks code.
int64_t other_number(Random& random, int64_t n) {
  const auto bits = static_cast<uint64_t>(n);  // wraps around
  const uint64_t numbers[] = {bits - 1, bits + 1,  static_cast<uint64_t>(n / 2),
                              0 - bits, 0,         1,
                              ~0ull,    INT64_MAX, 1ull << 63};
  if (random() % 2 == 0 && n < INT32_MAX && n > INT32_MIN) {
    return static_cast<int64_t>(numbers[random() % 2]);
  }
  return static_cast<int64_t>(numbers[below(random, std::size(numbers))]);
}

double other_number(Random& random, double n) {
  const double numbers[] = {n - 1, n + 1, n / 2, -n,       0,         1,
                            -1,    1e19,  -1e19, HUGE_VAL, -HUGE_VAL, NAN};
  return numbers[below(random, std::size(numbers))];
}

void change_tensor(Random& random, pte::Tensor& tensor) {
  switch (random() % 4) {
    case 0:
      tensor.dtype = static_cast<DType>(random() % (static_cast<int>(DType::kF64) + 1));
      return;
    case 1:
      if (tensor.allocation) tensor.allocation->offset = below(random, 64) * 16;
      return;
    case 2:
      tensor.dynamism = tensor.dynamism == pte::Dynamism::kStatic ? pte::Dynamism::kDynamicBound
                                                                  : pte::Dynamism::kStatic;
      return;
    default:
      if (tensor.sizes.empty()) return;
      tensor.sizes[below(random, tensor.sizes.size())] = static_cast<int32_t>(random() % 9);
  }
}

void change_value(Random& random, pte::Value& value) {
  if (auto* tensor = std::get_if<pte::Tensor>(&value)) {
    change_tensor(random, *tensor);
  } else if (auto* integer = std::get_if<int64_t>(&value)) {
    *integer = other_number(random, *integer);
  } else if (auto* number = std::get_if<double>(&value)) {
    *number = other_number(random, *number);
  } else if (auto* flag = std::get_if<bool>(&value)) {
    *flag = !*flag;
  } else if (auto* list = std::get_if<pte::IntList>(&value); list && !list->items.empty()) {
    std::swap(list->items.front(), list->items[below(random, list->items.size())]);
  }
}

// Changes the delegate or an argument, or adds or removes one.
void change_delegate_call(Random& random, const pte::Method& method, int32_t value,
                          pte::DelegateCall& call) {
  switch (random() % 4) {
    case 0:
      call.delegate = static_cast<int32_t>(below(random, method.delegates.size()));
      return;
    case 1:
      call.args.push_back(value);
      return;
    case 2:
      if (!call.args.empty()) call.args.pop_back();
      return;
    default:
      if (!call.args.empty()) call.args[below(random, call.args.size())] = value;
  }
}

// Changes the blob of a delegate, or the bytes of a name.
void change_data(Random& random, pte::Program& program, pte::Method& method) {
  if (random() % 2 == 0 && !method.delegates.empty()) {
    pte::Delegate& one = method.delegates[below(random, method.delegates.size())];
    one.data = method.delegates[below(random, method.delegates.size())].data;
  } else if (!program.named_data.empty()) {
    pte::NamedData& one = program.named_data[below(random, program.named_data.size())];
    one.data = program.named_data[below(random, program.named_data.size())].data;
  }
}

void change_instruction(Random& random, pte::Method& method) {
  if (method.instructions.empty()) return;
  pte::Instruction& one = method.instructions[below(random, method.instructions.size())];
  const auto value = static_cast<int32_t>(below(random, method.values.size()));
  if (auto* call = std::get_if<pte::KernelCall>(&one)) {
    if (random() % 4 == 0) {
      call->op = static_cast<int32_t>(below(random, method.operators.size()));
    } else if (!call->args.empty()) {
      call->args[below(random, call->args.size())] = value;
    }
  } else if (auto* delegated = std::get_if<pte::DelegateCall>(&one)) {
    change_delegate_call(random, method, value, *delegated);
  } else if (auto* jump = std::get_if<pte::JumpFalseCall>(&one)) {
    jump->destination = static_cast<int32_t>(below(random, method.instructions.size() + 1));
  } else if (auto* move = std::get_if<pte::MoveCall>(&one)) {
    (random() % 2 == 0 ? move->from : move->to) = value;
  }
}

void change(Random& random, pte::Program& program) {
  if (program.methods.empty()) return;
  pte::Method& method = program.methods[below(random, program.methods.size())];
  if (random() % 8 == 0) {
    change_data(random, program, method);
  } else if (random() % 2 == 0 && !method.values.empty()) {
    change_value(random, method.values[below(random, method.values.size())]);
  } else {
    change_instruction(random, method);
  }
}

const std::vector<std::span<const std::byte>>& pieces_of(const pte::ProgramData& data,
                                                         pte::Piece::Kind kind) {
  switch (kind) {
    case pte::Piece::Kind::kConstant:
      return data.constants;
    case pte::Piece::Kind::kInitial:
      return data.initial;
    case pte::Piece::Kind::kDelegate:
      return data.delegates;
    case pte::Piece::Kind::kNamed:
      break;
  }
  return data.named;
}

// Returns nothing if the program is invalid or too large.
std::vector<std::byte> write(const pte::Program& program, const pte::ProgramData& data,
                             size_t max_size) {
  const auto layout = pte::plan_program(program, pte::sizes_of(data));
  if (!layout || layout->file_bytes > max_size) return {};
  std::vector<std::byte> file = layout->head;
  file.resize(layout->file_bytes);
  for (const pte::Piece& piece : layout->pieces) {
    std::ranges::copy(pieces_of(data, piece.kind)[piece.index].first(piece.size),
                      file.begin() + static_cast<std::ptrdiff_t>(piece.offset));
  }
  return file;
}

// Kinds may be any known kind, and ids any value of the graph.
void change_node(Random& random, const xnnpack::Graph& graph, xnnpack::Node& node) {
  const uint32_t id = graph.values[below(random, graph.values.size())].id;
  switch (random() % 5) {
    case 0:
      node.kind = static_cast<xnnpack::NodeKind>(1 + below(random, 47));
      return;
    case 1:
      if (!node.inputs.empty()) node.inputs[below(random, node.inputs.size())] = id;
      return;
    case 2:
      if (!node.outputs.empty()) node.outputs[0] = id;
      return;
    case 3:
      node.output_range = {{-1, static_cast<float>(random() % 3) - 1}};
      return;
    default:
      if (node.numbers.empty()) return;
      int64_t& number = node.numbers[below(random, node.numbers.size())];
      number = other_number(random, number);
  }
}

void change_graph_value(Random& random, xnnpack::Value& value) {
  if (random() % 4 == 0) {
    value.datatype = static_cast<xnnpack::Datatype>(1 + below(random, 14));
  } else if (!value.dims.empty() && random() % 2 == 0) {
    value.dims[below(random, value.dims.size())] = static_cast<uint32_t>(random() % 9);
  } else if (random() % 2 == 0) {
    value.dims.push_back(1);
  } else if (auto* group = std::get_if<xnnpack::PerChannelGroup>(&value.quantization)) {
    group->group_size = static_cast<uint32_t>(other_number(random, int64_t{group->group_size}));
  }
}

void change_graph(Random& random, xnnpack::Graph& graph) {
  if (graph.values.empty() || graph.nodes.empty()) return;
  const size_t node = below(random, graph.nodes.size());
  switch (random() % 4) {
    case 0:
      change_graph_value(random, graph.values[below(random, graph.values.size())]);
      return;
    case 1:
      std::swap(graph.nodes[node], graph.nodes[below(random, graph.nodes.size())]);
      return;
    default:
      change_node(random, graph, graph.nodes[node]);
  }
}

// Returns the program with a change in the graph of a delegate; empty if it becomes invalid.
std::vector<std::byte> with_other_graph(Random& random, const pte::LoadedProgram& loaded,
                                        size_t max_size) {
  pte::ProgramData data = loaded.data;
  std::span<const std::byte>& blob = data.delegates[below(random, data.delegates.size())];
  auto graph = xnnpack::read_blob(blob, "f");
  if (!graph) return {};
  const xnnpack::Graph before = *graph;
  for (size_t i = 0; i <= random() % 3; ++i) change_graph(random, *graph);
  if (*graph == before) return {};
  const auto changed = xnnpack::write_blob(*graph);
  if (!changed) return {};
  blob = *changed;
  return write(loaded.program, data, max_size);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto loaded = pte::read_program(std::as_bytes(std::span(data, size)), "f");
  if (!loaded) return LLVMFuzzerMutate(data, size, max_size);
  Random random(seed);
  for (int i = 0; i < kTries; ++i) {
    std::vector<std::byte> file;
    if (!loaded->data.delegates.empty() && random() % 2 == 0) {
      file = with_other_graph(random, *loaded, max_size);
    } else {
      pte::Program program = loaded->program;
      change(random, program);
      if (program == loaded->program) continue;
      file = write(program, loaded->data, max_size);
    }
    if (file.empty()) continue;
    std::memcpy(data, file.data(), file.size());
    return file.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
