// Programs survive the way to bytes and back, and files have the layout that the runtime wants.
#include "formats/pte/reader.h"
#include "formats/pte/writer.h"
#include "tests/formats/program_files.h"

namespace ferry::pte {
namespace {

// One of everything: each kind of value and of instruction, stored and external data.
Program sample_program() {
  Method m;
  m.name = "forward";
  m.operators = {{"aten::mul", "out"}, {"aten::copy_", ""}, {"vendor::secret", "out"}};
  Tensor input = tensor({2, 4});
  input.dynamism = Dynamism::kDynamicBound;
  Tensor weight = tensor({4});
  weight.external = true;
  weight.fqn = "layers.0.weight";
  Tensor constant = tensor({});
  constant.dtype = DType::kI64;
  constant.data_index = 1;
  Tensor state = planned({2, 4}, 0, 2);
  state.data_index = 1;
  state.fqn = "state";
  m.values = {input,
              weight,
              constant,
              state,
              planned({2, 4}, uint64_t{5} << 32),
              None{},
              int64_t{-7},
              int64_t{1} << 40,
              true,
              2.5,
              std::string("none"),
              IntList{{6, 7, 6}},
              DoubleList{{0.5, -1}},
              BoolList{{true, false, true}},
              TensorList{{0, 4}},
              OptionalTensorList{{-1, 4}},
              false};
  m.inputs = {0, 8};
  m.outputs = {4, 6};
  m.instructions = {KernelCall{0, {0, 1, 4, 4}},
                    MoveCall{6, 7},
                    JumpFalseCall{8, 5},
                    KernelCall{1, {3, 4, 16, 3}},
                    KernelCall{2, {2, 5, 10, 12, 11}},
                    FreeCall{4}};
  m.memory_bytes = {0, (uint64_t{5} << 32) + 32, 32};
  Method constant_method;
  constant_method.name = "get_eos_ids";
  constant_method.values = {int64_t{1}, int64_t{2}};
  constant_method.outputs = {0, 1};
  constant_method.memory_bytes = {0};
  return {{m, constant_method}};
}

// The file that a plan describes, pieces filled with 'c' and 'i' plus their index.
std::vector<std::byte> file_of(const Layout& layout) {
  std::vector<std::byte> file = layout.head;
  file.resize(layout.file_bytes);
  for (const Piece& piece : layout.pieces) {
    const int mark =
        (piece.kind == Piece::Kind::kConstant ? 'c' : 'i') + static_cast<int>(piece.index);
    std::memset(file.data() + piece.offset, mark, piece.size);
  }
  return file;
}

TEST(PteWriter, EveryKindOfValueAndInstructionSurvives) {
  const Program program = sample_program();
  const auto layout = plan_program(program, {{0, 8, 3}, {0, 32}});
  ASSERT_TRUE(layout) << layout.error().message;
  const auto file = file_of(*layout);
  const auto loaded = read_program(file, "x.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->program, program);
  ASSERT_EQ(loaded->data.constants.size(), 3u);
  EXPECT_EQ(loaded->data.constants[1][0], std::byte{'c' + 1});
  EXPECT_EQ(loaded->data.constants[2].size(), 3u);
  ASSERT_EQ(loaded->data.initial.size(), 2u);
  EXPECT_EQ(loaded->data.initial[1].size(), 32u);
  EXPECT_EQ(loaded->data.initial[1][31], std::byte{'i' + 1});
  EXPECT_EQ(loaded->data.constant_bytes, 19u);
  EXPECT_EQ(loaded->data.initial_bytes, 32u);
}

TEST(PteWriter, LaysOutSegmentsAsTheExporterDoes) {
  const auto layout = plan_program(sample_program(), {{0, 8, 3}, {0, 32, 0, 1}});
  ASSERT_TRUE(layout);
  const uint64_t base = layout->head.size();
  EXPECT_EQ(base % 128, 0u);
  ASSERT_EQ(layout->pieces.size(), 4u);  // nothing for the empty one
  EXPECT_EQ(layout->pieces[0].offset, base);
  EXPECT_EQ(layout->pieces[1].offset, base + 16);
  EXPECT_EQ(layout->pieces[2].offset, base + 128);
  EXPECT_EQ(layout->pieces[3].offset, base + 128 + 32);
  EXPECT_EQ(layout->pieces[3].index, 3u);
  EXPECT_EQ(layout->file_bytes, base + 128 + 33);
  EXPECT_EQ(std::memcmp(layout->head.data() + 4, "ET12eh00", 8), 0);
}

TEST(PteWriter, WithoutDataThereIsNoExtendedHeader) {
  Program program = sample_program();
  program.methods.erase(program.methods.begin());
  const auto layout = plan_program(program, {});
  ASSERT_TRUE(layout);
  EXPECT_TRUE(layout->pieces.empty());
  EXPECT_EQ(layout->file_bytes, layout->head.size());
  EXPECT_NE(std::memcmp(layout->head.data() + 8, "eh00", 4), 0);
  const auto loaded = read_program(layout->head, "x.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->program, program);
}

TEST(PteWriter, InitialContentsWithoutConstants) {
  Program program = sample_program();
  std::get<Tensor>(program.methods[0].values[2]) = planned({}, 0);
  const auto layout = plan_program(program, {{0}, {0, 32}});
  ASSERT_TRUE(layout) << layout.error().message;
  const auto file = file_of(*layout);
  const auto loaded = read_program(file, "x.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->data.initial[1][0], std::byte{'i' + 1});
  EXPECT_EQ(loaded->data.constant_bytes, 0u);
}

TEST(PteWriter, SameProgramSameBytes) {
  const auto first = plan_program(sample_program(), {{0, 8}, {0, 32}});
  const auto second = plan_program(sample_program(), {{0, 8}, {0, 32}});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->head, second->head);
}

TEST(PteWriter, RefusesProgramsThatItCouldNotReadBack) {
  const auto short_data = plan_program(sample_program(), {{0, 8}, {0, 31}});
  ASSERT_FALSE(short_data);
  EXPECT_EQ(short_data.error().code, ErrorCode::kInternal);
  EXPECT_NE(short_data.error().message.find("'state'"), std::string::npos);

  Program delegated = sample_program();
  delegated.methods[0].delegates = {"Backend"};
  EXPECT_EQ(plan_program(delegated, {{0, 8}, {0, 32}}).error().code, ErrorCode::kUnsupported);
  EXPECT_FALSE(plan_program(sample_program(), {{0, 8, UINT64_MAX}, {0, 32}}));
  EXPECT_FALSE(plan_program(sample_program(), {{}, {}}));
}

class OfficialProgram : public testing::TestWithParam<const char*> {};

// What the official exporter wrote means the same after our own writer.
TEST_P(OfficialProgram, SurvivesReadingAndWriting) {
  const auto file = read_test_file(std::string("official_pte/") + GetParam());
  const auto official = read_program(file, GetParam());
  ASSERT_TRUE(official) << official.error().message;
  DataSizes sizes;
  for (const auto& span : official->data.constants) sizes.constants.push_back(span.size());
  for (const auto& span : official->data.initial) sizes.initial.push_back(span.size());
  sizes.constants.erase(sizes.constants.begin());
  sizes.initial.erase(sizes.initial.begin());
  const auto layout = plan_program(official->program, sizes);
  ASSERT_TRUE(layout) << layout.error().message;
  const auto ours = file_of(*layout);
  const auto again = read_program(ours, "ours.pte");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->program, official->program);
  EXPECT_LE(again->data.program_bytes, official->data.program_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, OfficialProgram,
                         testing::Values("linear_ext.pte", "state_init.pte", "state_noinit.pte",
                                         "dyn.pte", "llama_tiny_ext.pte", "qwen35_dyn.pte"));

TEST(PteReader, StateInitHoldsWhatTheExporterSays) {
  const auto file = read_test_file("official_pte/state_init.pte");
  const auto loaded = read_program(file, "state_init.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Method* forward = loaded->program.find("forward");
  ASSERT_NE(forward, nullptr);
  EXPECT_EQ(forward->inputs, std::vector<int32_t>{5});
  EXPECT_EQ(forward->outputs, (std::vector<int32_t>{10, 11}));
  EXPECT_EQ(forward->memory_bytes, (std::vector<uint64_t>{0, 192}));
  Tensor state = planned({3, 4}, 96);
  state.data_index = 1;
  EXPECT_EQ(forward->values[0], Value(state));
  EXPECT_EQ(forward->instructions[4], Instruction(KernelCall{2, {0, 6, 13, 0}}));
  EXPECT_EQ(forward->operators[2].full_name(), "aten::copy_");
  EXPECT_EQ(loaded->data.constants.size(), 4u);
  EXPECT_EQ(loaded->data.constants[3].data(), file.data() + 2176 + 32);
  EXPECT_EQ(loaded->data.initial[2].data(), file.data() + 2176 + 128 + 48);
  EXPECT_EQ(loaded->data.initial_bytes, 56u);
  EXPECT_EQ(loaded->data.program_bytes, 2144u);
}

}  // namespace
}  // namespace ferry::pte
