// Each way in which a well-formed FlatBuffer can be an invalid program is refused, and the message
// names the place.
#include <functional>

#include "formats/pte/encode.h"
#include "formats/pte/reader.h"
#include "tests/formats/program_files.h"

namespace ferry::pte::validate_test {
namespace {

enum : int32_t { kX, kW, kY, kAlpha, kNone, kFlag, kList, kPair, kView, kSize, kOptional, kReal };

// A valid program, y = x + w; v = view(y), which the cases below make invalid.
Program valid_program() {
  Tensor w = tensor({4});
  w.external = true;
  w.fqn = "w";
  Method m;
  m.name = "forward";
  m.operators = {
      {"aten::add", "out"}, {"executorch_prim::et_view", "default"}, {"aten::index", "Tensor_out"}};
  m.values = {tensor({4}),
              w,
              planned({4}, 0),
              int64_t{1},
              None{},
              true,
              IntList{{3, 3}},
              TensorList{{0, 1}},
              planned({2, 2}, 0),
              IntList{{3}},
              OptionalTensorList{{-1, 0}},
              0.5};
  m.inputs = {kX};
  m.outputs = {kView};
  m.memory_bytes = {0, 16};
  m.instructions = {KernelCall{0, {kX, kW, kAlpha, kY, kY}}, KernelCall{1, {kY, kList, kView}},
                    KernelCall{2, {kX, kOptional, kY, kY}}};
  return {{m}};
}

Result<LoadedProgram> reread(const Program& program) {
  const std::vector<uint8_t> flat = encode_program(program, {{{0, 0}}, {0}, {}});
  const auto* bytes = reinterpret_cast<const std::byte*>(flat.data());
  return read_program({bytes, flat.size()}, "x.pte");
}

TEST(PteValidate, TheStartIsValid) {
  const auto loaded = reread(valid_program());
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->program, valid_program());
}

struct Case {
  const char* message;  // what the error must contain
  std::function<void(Method&)> damage;
};

Tensor& at(Method& m, int32_t index) {
  return std::get<Tensor>(m.values[static_cast<size_t>(index)]);
}
KernelCall& call(Method& m, size_t index) { return std::get<KernelCall>(m.instructions[index]); }
template <class T>
void add(Method& m, T instruction) {
  m.instructions.push_back(std::move(instruction));
}

const Case kCases[] = {
    // tensors
    {"value 2: dimension -4", [](Method& m) { at(m, kY).sizes = {-4}; }},
    {"2 sizes and 1 dimensions",
     [](Method& m) {
       at(m, kY).sizes = {2, 2};
     }},
    {"value 2: rank 17",
     [](Method& m) {
       at(m, kY).sizes.assign(17, 1);
       at(m, kY).dim_order.assign(17, 0);
     }},
    {"no permutation",
     [](Method& m) {
       at(m, kView).dim_order = {1, 1};
     }},
    {"no permutation",
     [](Method& m) {
       at(m, kView).dim_order = {0, 2};
     }},
    {"no permutation", [](Method& m) { at(m, kY).dim_order = {200}; }},
    {"its size overflows",
     [](Method& m) {
       at(m, kY).sizes = {INT32_MAX, INT32_MAX, INT32_MAX, 0};
       at(m, kY).dim_order = {0, 1, 2, 3};
     }},
    {"external tensor without a name", [](Method& m) { at(m, kW).fqn = ""; }},
    {"(tensor 'w')", [](Method& m) { at(m, kW).sizes = {-1}; }},
    // storage
    {"planned memory 2 of 2", [](Method& m) { at(m, kY).allocation->memory = 2; }},
    {"planned memory 0 of 2", [](Method& m) { at(m, kY).allocation->memory = 0; }},
    {"16 bytes at 4 exceed", [](Method& m) { at(m, kY).allocation->offset = 4; }},
    {"exceed", [](Method& m) { at(m, kY).allocation->offset = UINT64_MAX - 7; }},
    {"initial contents 1 of 1", [](Method& m) { at(m, kY).data_index = 1; }},
    {"constant 9 of 1", [](Method& m) { m.values.push_back(at(m, kX)), at(m, 12).data_index = 9; }},
    {"planned memory 0 is reserved", [](Method& m) { m.memory_bytes[0] = 1; }},
    {"planned memory 0 is reserved", [](Method& m) { m.memory_bytes.clear(); }},
    {"planned memory 1 of", [](Method& m) { m.memory_bytes[1] = uint64_t{1} << 50; }},
    {"planned memory of -1 bytes", [](Method& m) { m.memory_bytes[1] = UINT64_MAX; }},
    {"value 12: a tensor without memory", [](Method& m) { m.values.push_back(tensor({1})); }},
    // lists
    {"value 6: list item 2 is no Int",
     [](Method& m) { std::get<IntList>(m.values[kList]).items[1] = kY; }},
    {"value 6: list item 99 is no Int",
     [](Method& m) { std::get<IntList>(m.values[kList]).items[1] = 99; }},
    {"value 6: list item -1 is no value",
     [](Method& m) { std::get<IntList>(m.values[kList]).items[1] = -1; }},
    {"value 7: list item 3 is no earlier",
     [](Method& m) { std::get<TensorList>(m.values[kPair]).items[0] = kAlpha; }},
    {"value 7: list item -1 is no earlier",
     [](Method& m) { std::get<TensorList>(m.values[kPair]).items[0] = -1; }},
    {"value 7: list item 8 is no earlier",
     [](Method& m) { std::get<TensorList>(m.values[kPair]).items[0] = kView; }},
    {"value 10: list item -2 is no earlier",
     [](Method& m) { std::get<OptionalTensorList>(m.values[kOptional]).items[0] = -2; }},
    // inputs and outputs
    {"input is value 12 of 12", [](Method& m) { m.inputs = {12}; }},
    {"output is value -1 of 12", [](Method& m) { m.outputs = {-1}; }},
    {"an input is a constant",
     [](Method& m) {
       m.inputs = {kX, kW};
     }},
    // kernel calls
    {"instruction 0: operator 3 of 3", [](Method& m) { call(m, 0).op = 3; }},
    {"instruction 0: operator -1 of 3", [](Method& m) { call(m, 0).op = -1; }},
    {"instruction 0 ('aten::add.out'): argument is value 12",
     [](Method& m) { call(m, 0).args[0] = 12; }},
    {"argument is value -1 of", [](Method& m) { call(m, 0).args[0] = -1; }},
    {"4 arguments, expected 5", [](Method& m) { call(m, 0).args.pop_back(); }},
    {"argument 'alpha' is value 0", [](Method& m) { call(m, 0).args[2] = kX; }},
    {"argument 'other' is value 4", [](Method& m) { call(m, 0).args[1] = kNone; }},
    {"argument 'size' is value 3", [](Method& m) { call(m, 1).args[1] = kAlpha; }},
    {"argument 'indices' is value 7", [](Method& m) { call(m, 2).args[1] = kPair; }},
    {"result is not what it writes", [](Method& m) { call(m, 0).args[4] = kX; }},
    {"writes value 1, a constant",
     [](Method& m) {
       call(m, 0).args = {kX, kW, kAlpha, kW, kW};
     }},
    {"writes value 0, an input",
     [](Method& m) {
       call(m, 0).args = {kX, kW, kAlpha, kX, kX};
     }},
    {"writes value 1, a constant or input", [](Method& m) { call(m, 1).args[2] = kW; }},
    {"view is larger", [](Method& m) { at(m, kY).sizes = {3}; }},
    {"view is larger", [](Method& m) { at(m, kView).dtype = DType::kI32; }},
    // other instructions
    {"instruction 3: delegate 0 of 0",
     [](Method& m) {
       add(m, DelegateCall{0, {}});
     }},
    {"instruction 3: moves value 3 to 12",
     [](Method& m) {
       add(m, MoveCall{kAlpha, 12});
     }},
    {"value 3 to 0, of another kind",
     [](Method& m) {
       add(m, MoveCall{kAlpha, kX});
     }},
    {"tensor 8 to 2, of another shape",
     [](Method& m) {
       add(m, MoveCall{kView, kY});
     }},
    {"condition is value 3",
     [](Method& m) {
       add(m, JumpFalseCall{kAlpha, 0});
     }},
    {"condition is value 2",
     [](Method& m) {
       add(m, JumpFalseCall{kY, 0});
     }},
    {"jumps to 5 of 4",
     [](Method& m) {
       add(m, JumpFalseCall{kFlag, 5});
     }},
    {"jumps to -1 of 4",
     [](Method& m) {
       add(m, JumpFalseCall{kFlag, -1});
     }},
    {"frees value 5", [](Method& m) { add(m, FreeCall{kFlag}); }},
    // methods
    {"a method without a name", [](Method& m) { m.name = ""; }},
};

TEST(PteValidate, RefusesEachLieAndNamesIt) {
  for (const Case& c : kCases) {
    Program program = valid_program();
    c.damage(program.methods[0]);
    const auto loaded = reread(program);
    SCOPED_TRACE(c.message);
    ASSERT_FALSE(loaded);
    EXPECT_NE(loaded.error().message.find(c.message), std::string::npos) << loaded.error().message;
    EXPECT_TRUE(loaded.error().message.starts_with("x.pte: "));
    EXPECT_NE(loaded.error().code, ErrorCode::kInternal);
  }
}

// Names in messages are cut and escaped, so a message is one line whatever the file contains.
TEST(PteValidate, MessagesStayShort) {
  const std::string hostile(1000, '\x1b');
  Program program = valid_program();
  Method& m = program.methods[0];
  m.name = hostile;
  at(m, kW).fqn = hostile;
  m.operators.push_back({hostile, hostile});
  const Program start = program;
  call(m, 0).args[3] = kW;
  call(m, 0).args[4] = kW;
  EXPECT_LE(message_of(reread(program)).size(), 400u);
  EXPECT_FALSE(reread(program));
  program = start;
  at(m, kW).sizes = {-1};
  EXPECT_LE(message_of(reread(program)).size(), 400u);
  EXPECT_FALSE(reread(program));
  program = start;
  add(m, KernelCall{3, {99}});
  EXPECT_LE(message_of(reread(program)).size(), 400u);
  EXPECT_FALSE(reread(program));
}

TEST(PteValidate, RefusesTwoMethodsOfOneName) {
  Program program = valid_program();
  program.methods.push_back(program.methods[0]);
  EXPECT_NE(message_of(reread(program)).find("two methods 'forward'"), std::string::npos);
  EXPECT_NE(message_of(reread({})).find("no method"), std::string::npos);
}

// Another runtime may have operators that our table lacks, so the program loads.
TEST(PteValidate, UnknownOperatorsLoad) {
  Program program = valid_program();
  program.methods[0].operators[0].name = "vendor::add";
  call(program.methods[0], 0).args = {kX};
  EXPECT_TRUE(reread(program));
  call(program.methods[0], 0).args = {99};
  EXPECT_FALSE(reread(program));
}

TEST(PteValidate, OptionalArgumentsMayBeNone) {
  Program program = valid_program();
  Method& m = program.methods[0];
  m.operators[0] = {"aten::linear", "out"};
  call(m, 0).args = {kX, kW, kNone, kY, kY};
  EXPECT_TRUE(reread(program)) << message_of(reread(program));
}

// A constant must not become writable by a view and a result together.
TEST(PteValidate, NothingWritesThroughAViewOfAConstant) {
  Program planned_view = valid_program();
  call(planned_view.methods[0], 1).args[0] = kW;
  EXPECT_NE(message_of(reread(planned_view)).find("planned elsewhere"), std::string::npos);

  Program unplanned_view = valid_program();
  Method& m = unplanned_view.methods[0];
  call(m, 1).args[0] = kW;
  at(m, kView).allocation.reset();
  EXPECT_TRUE(reread(unplanned_view)) << message_of(reread(unplanned_view));
  add(m, KernelCall{0, {kX, kX, kAlpha, kView, kView}});
  EXPECT_NE(message_of(reread(unplanned_view)).find("value 8: a tensor without memory that is"),
            std::string::npos);
}

// Outputs may be in memory of the caller.
TEST(PteValidate, UnplannedOutputsAreWritable) {
  Program program = valid_program();
  Method& m = program.methods[0];
  m.values.push_back(tensor({4}));  // 12
  call(m, 0).args = {kX, kW, kAlpha, 12, 12};
  EXPECT_NE(message_of(reread(program)).find("value 12: a tensor without memory that is written"),
            std::string::npos);
  m.outputs.push_back(12);
  EXPECT_TRUE(reread(program)) << message_of(reread(program));
}

// With several outs, the call repeats them as one list.
TEST(PteValidate, ResultsOfSeveralOutsAreAList) {
  Program program = valid_program();
  Method& m = program.methods[0];
  m.operators[0] = {"aten::topk", "values"};
  m.values.push_back(planned({2}, 8));       // 12
  m.values.push_back(TensorList{{kY, 12}});  // 13
  m.values.push_back(TensorList{{12, kY}});  // 14
  call(m, 0).args = {kX, kAlpha, kAlpha, kFlag, kFlag, kY, 12, 13};
  EXPECT_TRUE(reread(program)) << message_of(reread(program));
  call(m, 0).args.back() = 14;
  EXPECT_NE(message_of(reread(program)).find("result is not what"), std::string::npos);
  call(m, 0).args.back() = kY;
  EXPECT_NE(message_of(reread(program)).find("result is not what"), std::string::npos);
}

// The operator writes its cache argument, which therefore must not be a constant.
TEST(PteValidate, MutatedArgumentsAreNoConstants) {
  Program program = valid_program();
  Method& m = program.methods[0];
  m.operators[0] = {"llama::update_cache", "out"};
  call(m, 0).args = {kX, kW, kAlpha, kY, kY};
  EXPECT_NE(message_of(reread(program)).find("writes value 1, a constant"), std::string::npos);
}

// FlatBuffers may share parts, but a copy of them must not outgrow the file. The test sets the
// fields by their positions, because our own writer shares nothing.
TEST(PteValidate, SharedStringsCannotBlowUpMemory) {
  flatbuffers::FlatBufferBuilder b;
  const auto table = [&](auto add_fields) {
    const auto start = b.StartTable();
    add_fields();
    return flatbuffers::Offset<flatbuffers::Table>(b.EndTable(start));
  };
  const auto field = [](flatbuffers::voffset_t position) {
    return static_cast<flatbuffers::voffset_t>(4 + 2 * position);
  };
  const auto text = b.CreateString(std::string(1 << 16, 'x'));
  const auto string = table([&] { b.AddOffset(field(0), text); });
  const auto slot = table([&] {
    b.AddElement<uint8_t>(field(0), 6, 0);  // sets a string
    b.AddOffset(field(1), string);
  });
  const auto name = b.CreateString("forward");
  const auto none = b.CreateVector(std::vector<int32_t>());
  const auto values = b.CreateVector(std::vector(1000, slot));
  const auto plan = table([&] {
    b.AddOffset(field(0), name);
    b.AddOffset(field(2), values);
    b.AddOffset(field(3), none);
    b.AddOffset(field(4), none);
  });
  const auto plans = b.CreateVector(std::vector{plan});
  b.Finish(table([&] { b.AddOffset(field(1), plans); }), "ET12");
  const auto* bytes = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  const auto loaded = read_program({bytes, b.GetSize()}, "x.pte");
  EXPECT_NE(message_of(loaded).find("larger than the file"), std::string::npos)
      << message_of(loaded);
}

}  // namespace
}  // namespace ferry::pte::validate_test
