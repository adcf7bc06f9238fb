// Lowered graphs are programs that the reader accepts, with memory, lists and results in the form
// of the official exporter.
#include "graph/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "formats/pte/op_schema.h"
#include "graph/builder.h"
#include "tests/graph/lowered.h"

namespace ferry::graph::lower_test {
namespace {

using pte::KernelCall;
using pte::Method;

std::vector<MethodGraph> one_method(Graph graph) { return {{"forward", std::move(graph)}}; }

LoweredProgram lowered_graph(Result<Graph> graph,
                             const std::vector<MetadataMethod>& metadata = {}) {
  EXPECT_TRUE(graph) << graph.error().message;
  return lowered(one_method(*std::move(graph)), metadata);
}

const Method& forward(const LoweredProgram& program) { return program.program.methods[0]; }
template <class T>
const T& held(const Method& m, int32_t value) {
  return std::get<T>(m.values[static_cast<size_t>(value)]);
}
const KernelCall& call(const Method& m, size_t index) {
  return std::get<KernelCall>(m.instructions[index]);
}
std::string op_of(const Method& m, size_t index) {
  return m.operators[static_cast<size_t>(call(m, index).op)].full_name();
}

// Inputs tokens [1,T] with T up to 8, and the symbol T.
struct Tokens {
  ValueId ids;
  int32_t length;
};
Tokens tokens(GraphBuilder& b) {
  const int32_t length = b.symbol("T", 8, {});
  const ValueId ids = b.input("tokens", DType::kI64, {1, Dim::of(length)});
  b.bind_symbol(length, b.sym_size(ids, 1));
  return {ids, length};
}

TEST(Lower, ValuesAreWhereTheirOriginSays) {
  GraphBuilder b(1);
  const Tokens t = tokens(b);
  const ValueId x = b.embedding(b.weight("tok.weight", {32, 4}), t.ids);
  const ValueId y = b.add(x, b.scalar(0.5f));
  b.output(y, "hidden");
  b.probe("embedded", x);
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);

  EXPECT_EQ(m.name, "forward");
  ASSERT_EQ(m.inputs.size(), 1u);
  const pte::Tensor& input = tensor(m, m.inputs[0]);
  EXPECT_FALSE(input.allocation);
  EXPECT_EQ(input.sizes, (std::vector<int32_t>{1, 8}));
  EXPECT_EQ(input.dynamism, pte::Dynamism::kDynamicBound);

  EXPECT_EQ(op_of(m, 0), "aten::sym_size.int");
  EXPECT_EQ(op_of(m, 1), "aten::embedding.out");
  const auto& args = call(m, 1).args;
  const pte::Tensor& weight = tensor(m, args[0]);
  EXPECT_TRUE(weight.external);
  EXPECT_EQ(weight.fqn, "tok.weight");
  EXPECT_FALSE(weight.allocation);
  EXPECT_EQ(weight.dynamism, pte::Dynamism::kStatic);
  EXPECT_EQ(program.weights, std::vector<std::string>{"tok.weight"});
  EXPECT_EQ(held<int64_t>(m, args[2]), -1);
  EXPECT_EQ(args[5], args[6]);

  const pte::Tensor& half = tensor(m, call(m, 2).args[1]);
  EXPECT_EQ(half.data_index, 1u);
  EXPECT_FALSE(half.allocation || half.external);
  ASSERT_EQ(program.constants.size(), 2u);
  EXPECT_EQ(program.sizes.constants, (std::vector<uint64_t>{0, 4}));
  float contents = 0;
  program.constants[1].fill(0, std::as_writable_bytes(std::span(&contents, 1)));
  EXPECT_EQ(contents, 0.5f);

  const pte::Tensor& output = tensor(m, m.outputs[0]);
  ASSERT_TRUE(output.allocation);
  EXPECT_EQ(output.allocation->memory, 1u);
  EXPECT_EQ(output.sizes, (std::vector<int32_t>{1, 8, 4}));
  ASSERT_EQ(program.methods[0].probes.size(), 1u);
  EXPECT_EQ(program.methods[0].probes[0].value, args[5]);
  ASSERT_EQ(program.methods[0].outputs.size(), 1u);
  EXPECT_EQ(program.methods[0].outputs[0].name, "hidden");
  EXPECT_EQ(program.methods[0].outputs[0].shape, (Shape{1, 8, 4}));
  EXPECT_EQ(program.methods[0].inputs[0].name, "tokens");
  // Without buffers there is no memory 2.
  EXPECT_EQ(m.memory_bytes, (std::vector<uint64_t>{0, 256}));
  EXPECT_EQ(program.methods[0].activation_bytes, 256u);
  EXPECT_EQ(program.methods[0].activation_lower_bound, 256u);
}

TEST(Lower, ViewsHaveTheMemoryOfTheirTensor) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {2, 6});
  const ValueId buffer = b.buffer("state", DType::kF32, {3, 4});
  const ValueId y = b.add(x, x);
  const ValueId view = b.view(b.view(y, {3, 4}), {12});
  const ValueId other = b.mul(x, x);  // is made while only the view is still needed
  const ValueId other_view = b.view(other, {12});
  const ValueId buffer_view = b.view(buffer, {12});
  const ValueId input_view = b.view(x, {12});
  b.output(b.add(view, other_view), "sum");
  b.output(b.add(buffer_view, input_view), "second");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);

  const auto place = [&](size_t index, size_t arg) {
    return tensor(m, call(m, index).args[arg]).allocation;
  };
  ASSERT_EQ(op_of(m, 1), "executorch_prim::et_view.default");
  EXPECT_EQ(call(m, 1).args.size(), 3u);
  EXPECT_EQ(place(1, 2), place(0, 3));
  EXPECT_EQ(place(2, 2), place(0, 3));
  EXPECT_NE(place(3, 2), place(0, 3));
  // Views of a buffer are planned with the buffer. Views of an input are not planned.
  std::vector<std::optional<pte::Allocation>> views;
  for (size_t i = 0; i < m.instructions.size(); ++i) {
    if (op_of(m, i) == "executorch_prim::et_view.default") views.push_back(place(i, 2));
  }
  ASSERT_EQ(views.size(), 5u);
  EXPECT_EQ(views[3], (pte::Allocation{2, 0}));
  EXPECT_EQ(views[4], std::nullopt);
}

TEST(Lower, EqualConstantsAreOneValue) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {2, 3, 4});
  const ValueId y = b.permute(b.permute(x, {1, 0, 2}), {1, 0, 2});
  b.output(b.mul(b.mul(y, 2.0), 2.0), "y");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);
  EXPECT_EQ(call(m, 0).args[1], call(m, 1).args[1]);
  const auto& dims = held<pte::IntList>(m, call(m, 0).args[1]);
  EXPECT_EQ(held<int64_t>(m, dims.items[0]), 1);
  EXPECT_EQ(call(m, 2).args[1], call(m, 3).args[1]);
  EXPECT_EQ(held<double>(m, call(m, 2).args[1]), 2.0);
  EXPECT_EQ(m.operators.size(), 2u);
}

TEST(Lower, SplitTakesAndRepeatsAList) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {2, 6});
  const auto parts = b.split(x, {2, 4}, 1);
  b.output(parts[0], "a");
  b.output(parts[1], "b");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);
  const auto& args = call(m, 0).args;
  ASSERT_EQ(args.size(), 5u);
  EXPECT_EQ(held<pte::TensorList>(m, args[3]).items, m.outputs);
  EXPECT_EQ(held<pte::TensorList>(m, args[4]).items, m.outputs);
  EXPECT_NE(tensor(m, m.outputs[0]).allocation, tensor(m, m.outputs[1]).allocation);
}

// The official llama_tiny_sdpa has the same arguments: the dummy out of update_cache, None, a
// Double and a Bool.
TEST(Lower, CacheAndAttention) {
  GraphBuilder b(1);
  const Tokens t = tokens(b);
  const ValueId pos = b.input("input_pos", DType::kI64, {1});
  const ValueId start = b.item(pos);
  const ValueId q = b.input("q", DType::kF32, {1, Dim::of(t.length), 4, 8});
  const ValueId k = b.input("k", DType::kF32, {1, Dim::of(t.length), 2, 8});
  const ValueId keys = b.buffer("layers.0.k_cache", DType::kF32, {1, 16, 2, 8});
  const ValueId values = b.buffer("layers.0.v_cache", DType::kF32, {1, 16, 2, 8});
  b.update_cache(k, keys, start);
  b.update_cache(k, values, start);
  b.output(b.sdpa(q, keys, values, start), "attention");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);

  ASSERT_EQ(op_of(m, 2), "llama::update_cache.out");
  const auto& update = call(m, 2).args;
  ASSERT_EQ(update.size(), 5u);
  EXPECT_EQ(update[3], update[4]);
  EXPECT_EQ(tensor(m, update[3]).sizes, std::vector<int32_t>{1});
  EXPECT_EQ(tensor(m, update[3]).dtype, DType::kF32);
  EXPECT_EQ(update[2], call(m, 1).args[1]);  // the Int of _local_scalar_dense

  ASSERT_EQ(op_of(m, 4), "llama::custom_sdpa.out");
  const auto& sdpa = call(m, 4).args;
  ASSERT_EQ(sdpa.size(), 10u);
  EXPECT_TRUE(std::holds_alternative<pte::None>(m.values[static_cast<size_t>(sdpa[4])]));
  EXPECT_EQ(sdpa[4], sdpa[7]);
  EXPECT_EQ(held<double>(m, sdpa[5]), 0.0);
  EXPECT_EQ(held<bool>(m, sdpa[6]), true);

  ASSERT_EQ(program.methods[0].buffers.size(), 2u);
  EXPECT_EQ(program.methods[0].buffers[0].name, "layers.0.k_cache");
  EXPECT_EQ(program.methods[0].buffers[0].value, update[1]);
  EXPECT_EQ(program.methods[0].buffers[0].bytes, 1024u);
  EXPECT_EQ(program.methods[0].buffers[0].initial, 0u);
  EXPECT_EQ(tensor(m, update[1]).fqn, "layers.0.k_cache");
  EXPECT_FALSE(tensor(m, update[1]).external);
  EXPECT_EQ(tensor(m, program.methods[0].buffers[1].value).allocation, (pte::Allocation{2, 1024}));
  EXPECT_EQ(program.state_bytes, 2048u);
  EXPECT_EQ(m.memory_bytes[2], 2048u);
}

TEST(Lower, DeltaRuleWritesAFreshOutAndABuffer) {
  GraphBuilder b(1);
  const Dims heads = {1, 2, 4};
  const ValueId q = b.input("q", DType::kF32, {1, 2, 4, 8});
  const ValueId v = b.input("v", DType::kF32, {1, 2, 4, 6});
  const ValueId gate = b.input("gate", DType::kF32, heads);
  const ValueId state = b.buffer("state", DType::kF32, {1, 2, 8, 6});
  const ValueId next = b.buffer("next", DType::kF32, {1, 2, 8, 6});
  b.output(b.gated_delta_rule(q, q, v, gate, gate, state, next).first, "out");
  b.copy_into(state, next);
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);

  const auto& rule = call(m, 0).args;
  ASSERT_EQ(rule.size(), 9u);
  EXPECT_EQ(rule[6], m.outputs[0]);
  EXPECT_EQ(rule[7], program.methods[0].buffers[1].value);
  EXPECT_EQ(held<pte::TensorList>(m, rule[8]).items, (std::vector<int32_t>{rule[6], rule[7]}));
  ASSERT_EQ(op_of(m, 1), "aten::copy_");
  const auto& copy = call(m, 1).args;
  ASSERT_EQ(copy.size(), 4u);
  EXPECT_EQ(copy[0], program.methods[0].buffers[0].value);
  EXPECT_EQ(copy[1], rule[7]);
  EXPECT_EQ(held<bool>(m, copy[2]), false);
  EXPECT_EQ(copy[3], copy[0]);
}

// _to_copy takes its dtype from its out, and has no argument for it.
TEST(Lower, CastsByTheDtypeOfTheOut) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {4});
  b.output(b.to(x, DType::kF16), "y");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);
  const auto& args = call(m, 0).args;
  EXPECT_EQ(op_of(m, 0), "aten::_to_copy.out");
  ASSERT_EQ(args.size(), 5u);
  EXPECT_EQ(held<bool>(m, args[1]), false);
  EXPECT_TRUE(std::holds_alternative<pte::None>(m.values[static_cast<size_t>(args[2])]));
  EXPECT_EQ(tensor(m, args[3]).dtype, DType::kF16);
}

// All codes of the dtype are used. Dtypes are scalar types of the official runtime.
TEST(Lower, QuantizationStatesItsEncoding) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {4});
  const ValueId bytes = b.quantize(x, 0.125, 3, DType::kU8);
  const ValueId words =
      b.quantize(b.dequantize(b.fallback(bytes), 0.125, 3), 0.5, 65535, DType::kU16);
  b.output(words, "y");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);
  const auto numbers = [&](const std::vector<int32_t>& args, size_t begin, size_t end) {
    std::vector<int64_t> held_numbers;
    for (size_t i = begin; i < end; ++i) held_numbers.push_back(held<int64_t>(m, args[i]));
    return held_numbers;
  };
  EXPECT_EQ(op_of(m, 0), "quantized_decomposed::quantize_per_tensor.out");
  const auto& quantize = call(m, 0).args;
  ASSERT_EQ(quantize.size(), 8u);
  EXPECT_EQ(held<double>(m, quantize[1]), 0.125);
  EXPECT_EQ(numbers(quantize, 2, 6), (std::vector<int64_t>{3, 0, 255, 0}));
  EXPECT_EQ(tensor(m, quantize[6]).dtype, DType::kU8);
  EXPECT_EQ(op_of(m, 1), "llama::fallback.out");
  ASSERT_EQ(call(m, 1).args.size(), 3u);
  EXPECT_EQ(tensor(m, call(m, 1).args[1]).dtype, DType::kU8);
  EXPECT_EQ(op_of(m, 2), "quantized_decomposed::dequantize_per_tensor.out");
  const auto& dequantize = call(m, 2).args;
  ASSERT_EQ(dequantize.size(), 9u);
  EXPECT_EQ(numbers(dequantize, 2, 7), (std::vector<int64_t>{3, 0, 255, 0, 6}));
  EXPECT_EQ(tensor(m, dequantize[7]).dtype, DType::kF32);
  EXPECT_EQ(numbers(call(m, 3).args, 2, 6), (std::vector<int64_t>{65535, 0, 65535, 27}));
  EXPECT_EQ(tensor(m, call(m, 3).args[6]).dtype, DType::kU16);
}

TEST(Lower, StoredBuffersShareEqualContentsButNotMemory) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {4});
  ValueId sum = x;
  for (const char* name : {"a", "b", "c"}) {
    sum = b.add(sum, b.buffer(name, DType::kF32, {4}));
  }
  b.output(sum, "y");
  Result<Graph> graph = b.finish();
  ASSERT_TRUE(graph) << graph.error().message;
  for (Value& value : graph->values) value.stored = value.name == "a" || value.name == "c";
  const LoweredProgram program = lowered_graph(std::move(graph));
  ASSERT_EQ(program.methods[0].buffers.size(), 3u);
  EXPECT_EQ(program.methods[0].buffers[0].initial, 1u);
  EXPECT_EQ(program.methods[0].buffers[1].initial, 0u);
  EXPECT_EQ(program.methods[0].buffers[2].initial, 1u);
  EXPECT_EQ(program.sizes.initial, (std::vector<uint64_t>{0, 16}));
  std::vector<std::byte> contents(16, std::byte{1});
  program.initial[1].fill(0, contents);
  EXPECT_EQ(contents, std::vector<std::byte>(16));
  std::set<uint64_t> offsets;
  for (const LoweredBuffer& buffer : program.methods[0].buffers) {
    offsets.insert(tensor(forward(program), buffer.value).allocation->offset);
  }
  EXPECT_EQ(offsets.size(), 3u);
}

TEST(Lower, MetadataBecomesConstantMethods) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {4});
  b.output(b.add(x, x), "y");
  const LoweredProgram program =
      lowered_graph(b.finish(), {{"get_max_seq_len", {int64_t{128}}},
                                 {"use_kv_cache", {true}},
                                 {"get_eos_ids", {int64_t{2}, int64_t{7}}}});
  const pte::Method* seq = program.program.find("get_max_seq_len");
  ASSERT_NE(seq, nullptr);
  EXPECT_EQ(seq->values, std::vector<pte::Value>{int64_t{128}});
  EXPECT_EQ(seq->outputs, std::vector<int32_t>{0});
  EXPECT_EQ(seq->memory_bytes, std::vector<uint64_t>{0});
  EXPECT_TRUE(seq->instructions.empty());
  EXPECT_EQ(program.program.find("use_kv_cache")->values, std::vector<pte::Value>{true});
  EXPECT_EQ(program.program.find("get_eos_ids")->outputs, (std::vector<int32_t>{0, 1}));
}

// Replays the kernel calls: a write must not overlap bytes that are read later.
TEST(Lower, NothingIsOverwrittenBeforeItsLastUse) {
  GraphBuilder b(4);
  const Tokens t = tokens(b);
  ValueId x = b.embedding(b.weight("tok", {32, 16}), t.ids);
  for (int layer = 0; layer < 4; ++layer) {
    const ValueId scale = b.rsqrt(b.add(b.mean_last(b.mul(x, x)), b.scalar(1e-5f)));
    const ValueId normed = b.mul(x, scale);
    const std::string name = "layers." + std::to_string(layer);
    const ValueId up = b.linear(normed, b.weight(name + ".up", {64, 16}));
    const ValueId heads = b.view(up, {1, Dim::of(t.length), 8, 8});
    const ValueId swapped = b.permute(heads, {0, 2, 1, 3});
    const ValueId back = b.view(b.permute(swapped, {0, 2, 1, 3}), {1, Dim::of(t.length), 64});
    x = b.add(x, b.linear(b.mul(back, b.sigmoid(up)), b.weight(name + ".down", {16, 64})));
  }
  b.output(x, "hidden");
  const LoweredProgram program = lowered_graph(b.finish());
  const Method& m = forward(program);

  struct Owner {
    uint64_t begin, end;
    int32_t root;
  };
  std::vector<Owner> memory;                       // owners of bytes, by the last write
  std::vector<int32_t> root(m.values.size(), -1);  // the tensor that a view shows
  const auto range = [&](int32_t v) {
    const pte::Tensor& of = tensor(m, v);
    return std::pair(of.allocation->offset, of.allocation->offset + *pte::tensor_bytes(of));
  };
  size_t checked = 0;
  const auto expect_intact = [&](int32_t v) {
    if (v < 0 || !std::holds_alternative<pte::Tensor>(m.values[static_cast<size_t>(v)])) return;
    if (!tensor(m, v).allocation) return;
    const auto [begin, end] = range(v);
    for (const Owner& owner : memory) {
      if (owner.begin < end && begin < owner.end) {
        EXPECT_EQ(owner.root, root[static_cast<size_t>(v)]);
        ++checked;
      }
    }
  };
  for (size_t i = 0; i < m.instructions.size(); ++i) {
    const auto& args = call(m, i).args;
    const pte::OpSchema* schema = pte::find_op_schema(op_of(m, i));
    int32_t out = -1;
    for (size_t a = 0; a < schema->args.size(); ++a) {
      if (schema->args[a].out) {
        out = args[a];
      } else {
        expect_intact(args[a]);
      }
    }
    if (!std::holds_alternative<pte::Tensor>(m.values[static_cast<size_t>(out)])) continue;
    const std::pair<uint64_t, uint64_t> bytes = range(out);
    if (op_of(m, i) == "executorch_prim::et_view.default") {
      root[static_cast<size_t>(out)] = root[static_cast<size_t>(args[0])];
      continue;
    }
    root[static_cast<size_t>(out)] = out;
    std::erase_if(memory,
                  [&](const Owner& o) { return o.begin < bytes.second && bytes.first < o.end; });
    memory.push_back({bytes.first, bytes.second, out});
    for (size_t a = 0; a < schema->args.size(); ++a) {
      // The call itself must not overwrite its arguments.
      if (!schema->args[a].out) expect_intact(args[a]);
    }
  }
  expect_intact(m.outputs[0]);
  EXPECT_GT(checked, 60u);
  EXPECT_LE(program.methods[0].activation_bytes * 10,
            program.methods[0].activation_lower_bound * 11);
}

TEST(Lower, SameGraphSameProgram) {
  const auto make = [] {
    GraphBuilder b(1);
    const ValueId x = b.input("x", DType::kF32, {8});
    b.output(b.add(b.mul(x, x), b.scalar(3)), "y");
    return lowered_graph(b.finish()).program;
  };
  EXPECT_EQ(make(), make());
}

TEST(Lower, BrokenGraphsAreDefects) {
  GraphBuilder b(1);
  const ValueId x = b.input("x", DType::kF32, {8});
  b.output(b.add(x, x), "y");
  Graph graph = *b.finish();
  graph.nodes[0].args.pop_back();
  const auto program = lower(one_method(graph), {});
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, ErrorCode::kInternal);
}

// Some runners set the memory of every output, which is impossible where the program has planned
// it.
TEST(Lower, OutputsOfTheCallerHaveNoPlace) {
  GraphBuilder b(0);
  const ValueId x = b.input("x", DType::kF32, {4});
  const ValueId doubled = b.add(x, x);
  b.output(doubled, "doubled");
  b.output(b.mul(doubled, doubled), "squared");
  const MethodGraph method{"forward", *b.finish()};
  for (const OutputMemory outputs : {OutputMemory::kPlanned, OutputMemory::kCallers}) {
    const auto program = lower(std::span(&method, 1), {}, outputs);
    ASSERT_TRUE(program);
    const pte::Method& m = program->program.methods[0];
    for (const int32_t output : m.outputs) {
      const auto& tensor = std::get<pte::Tensor>(m.values[static_cast<size_t>(output)]);
      EXPECT_EQ(tensor.allocation.has_value(), outputs == OutputMemory::kPlanned);
    }
    EXPECT_EQ(program->methods[0].activation_bytes > 0, outputs == OutputMemory::kPlanned);
  }
}

TEST(Lower, AnOutputOfTheCallerIsNoView) {
  GraphBuilder b(0);
  const ValueId x = b.input("x", DType::kF32, {4});
  b.output(b.view(b.add(x, x), {2, 2}), "y");
  const MethodGraph method{"forward", *b.finish()};
  EXPECT_TRUE(lower(std::span(&method, 1), {}));
  const auto program = lower(std::span(&method, 1), {}, OutputMemory::kCallers);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().message, "lowering: output y is a view");
}

}  // namespace
}  // namespace ferry::graph::lower_test
