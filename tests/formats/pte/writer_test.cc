// Programs are equal after writing and reading, and files have the layout that the runtime expects.
#include <cstring>

#include "formats/pte/reader.h"
#include "formats/pte/writer.h"
#include "tests/formats/program_files.h"

namespace ferry::pte::writer_test {
namespace {

// The program has each kind of value and of instruction, and stored and external data.
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

// Writes the file that a plan describes. Pieces are filled with 'c', 'i', 'd' or 'n' plus their
// index.
std::vector<std::byte> file_of(const Layout& layout) {
  std::vector<std::byte> file = layout.head;
  file.resize(layout.file_bytes);
  for (const Piece& piece : layout.pieces) {
    const int mark = "cidn"[static_cast<size_t>(piece.kind)] + static_cast<int>(piece.index);
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
  ASSERT_EQ(layout->pieces.size(), 4u);  // the empty piece is left out
  EXPECT_EQ(layout->pieces[0].offset, base);
  EXPECT_EQ(layout->pieces[1].offset, base + 16);
  EXPECT_EQ(layout->pieces[2].offset, base + 128);
  EXPECT_EQ(layout->pieces[3].offset, base + 128 + 32);
  EXPECT_EQ(layout->pieces[3].index, 3u);
  EXPECT_EQ(layout->file_bytes, base + 128 + 33);
  EXPECT_EQ(std::memcmp(layout->head.data() + 4, "ET12eh00", 8), 0);
}

// The program has two methods with three delegates, two of which share a blob, and named data, two
// of which are the same bytes.
Program delegated_program() {
  Program program = sample_program();
  Method& forward = program.methods[0];
  forward.delegates = {{"XnnpackBackend", 0}, {"OtherBackend", 1}, {"XnnpackBackend", 0}};
  forward.instructions.push_back(DelegateCall{2, {0, 4}});
  program.methods[1].delegates = {{"XnnpackBackend", 2}};
  program.named_data = {{"weight", 0}, {"scales", 1}, {"tied", 0}};
  return program;
}

TEST(PteWriter, DelegatesAndNamedDataSurvive) {
  const DataSizes sizes{{0, 8}, {0, 32}, {100, 0, 300}, {128, 7}};
  const auto layout = plan_program(delegated_program(), sizes);
  ASSERT_TRUE(layout) << layout.error().message;
  const auto file = file_of(*layout);
  const auto loaded = read_program(file, "x.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->program, delegated_program());
  EXPECT_EQ(sizes_of(loaded->data).delegates, sizes.delegates);
  EXPECT_EQ(sizes_of(loaded->data).named, sizes.named);
  EXPECT_EQ(loaded->data.delegates[2][299], std::byte{'d' + 2});
  EXPECT_EQ(loaded->data.named[1][6], std::byte{'n' + 1});
  EXPECT_EQ(loaded->data.delegate_bytes, 400u);
  EXPECT_EQ(loaded->data.named_bytes, 135u);
}

TEST(PteWriter, ASegmentForEachBlob) {
  const auto layout = plan_program(delegated_program(), {{0, 8}, {0, 32}, {100, 0, 300}, {128, 7}});
  ASSERT_TRUE(layout) << layout.error().message;
  ASSERT_EQ(layout->pieces.size(), 6u);
  const uint64_t base = layout->pieces[0].offset;
  std::vector<uint64_t> offsets;
  for (const Piece& piece : layout->pieces) offsets.push_back(piece.offset - base);
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, 128, 256, 384, 768, 896}));
  EXPECT_EQ(layout->pieces[2].kind, Piece::Kind::kDelegate);
  EXPECT_EQ(layout->pieces[5].kind, Piece::Kind::kNamed);
}

TEST(PteWriter, RefusesWrongDelegates) {
  const DataSizes sizes{{0, 8}, {0, 32}, {100, 0, 300}, {128, 7}};
  Program program = delegated_program();
  program.named_data[2].key = "weight";
  EXPECT_NE(plan_program(program, sizes).error().message.find("twice"), std::string::npos);
  program.named_data[2] = {"more", 2};
  EXPECT_NE(plan_program(program, sizes).error().message.find("'more'"), std::string::npos);
  program.named_data[2] = {"", 0};
  EXPECT_FALSE(plan_program(program, sizes));
  program = delegated_program();
  program.methods[0].delegates[0].backend.clear();
  EXPECT_FALSE(plan_program(program, sizes));
  program = delegated_program();
  std::get<DelegateCall>(program.methods[0].instructions.back()).delegate = 3;
  EXPECT_NE(plan_program(program, sizes).error().message.find("delegate 3 of 3"),
            std::string::npos);
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
  delegated.methods[0].delegates = {{"Backend", 1}};
  EXPECT_FALSE(plan_program(delegated, {{0, 8}, {0, 32}, {64}}));
  EXPECT_FALSE(plan_program(sample_program(), {{0, 8, UINT64_MAX}, {0, 32}}));
  EXPECT_FALSE(plan_program(sample_program(), {{}, {}}));
}

class OfficialProgram : public testing::TestWithParam<const char*> {};

// Programs of the official exporter have the same meaning after our writer wrote them again.
TEST_P(OfficialProgram, SurvivesReadingAndWriting) {
  const auto file = read_test_file(GetParam());
  const auto official = read_program(file, GetParam());
  ASSERT_TRUE(official) << official.error().message;
  const DataSizes sizes = sizes_of(official->data);
  const auto layout = plan_program(official->program, sizes);
  ASSERT_TRUE(layout) << layout.error().message;
  const auto ours = file_of(*layout);
  const auto again = read_program(ours, "ours.pte");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->program, official->program);
  EXPECT_EQ(sizes_of(again->data).delegates, sizes.delegates);
  EXPECT_EQ(sizes_of(again->data).named, sizes.named);
  EXPECT_LE(again->data.program_bytes, official->data.program_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    All, OfficialProgram,
    testing::Values("official_pte/linear_ext.pte", "official_pte/state_init.pte",
                    "official_pte/state_noinit.pte", "official_pte/dyn.pte",
                    "official_pte/llama_tiny_ext.pte", "official_pte/qwen35_dyn.pte",
                    "xnnpack/linear_8da4w_g32_bias.pte", "xnnpack/linear_8da8w_pc_ext.pte",
                    "xnnpack/ffn_8da4w_g32.pte", "xnnpack/llama_8da4w_e4_ext.pte"));

// The file has two blobs and six constants, which a .ptd file could hold as well.
TEST(PteReader, FindsOfficialDelegatesAndNamedData) {
  const auto file = read_test_file("xnnpack/ffn_8da4w_g32.pte");
  const auto loaded = read_program(file, "ffn.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Method& forward = loaded->program.methods[0];
  ASSERT_EQ(forward.delegates.size(), 3u);
  ASSERT_EQ(loaded->data.delegates.size(), 3u);
  for (const Delegate& delegate : forward.delegates) {
    EXPECT_EQ(delegate.backend, "XnnpackBackend");
    EXPECT_EQ(std::memcmp(loaded->data.delegates[delegate.data].data() + 4, "XH00", 4), 0);
  }
  ASSERT_EQ(loaded->program.named_data.size(), 6u);
  for (const NamedData& named : loaded->program.named_data) {
    const bool scales = named.key.starts_with("scale_");
    EXPECT_EQ(named.key.size(), scales ? 70u : 64u);
    EXPECT_EQ(loaded->data.named[named.data].size(), scales ? 384u : 3072u);
  }
  EXPECT_EQ(forward.instructions[0], Instruction(DelegateCall{0, {0, 1, 2}}));
}

TEST(PteReader, FindsABlobInsideOfTheProgram) {
  const auto file = read_test_file("xnnpack/linear_inline.pte");
  std::vector<std::byte> moved(3);  // an odd address, so that the reader has to copy the FlatBuffer
  moved.insert(moved.end(), file.begin(), file.end());
  const auto bytes = std::span(moved).subspan(3);
  const auto loaded = read_program(bytes, "inline.pte");
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_EQ(loaded->data.delegates.size(), 1u);
  const std::span<const std::byte> blob = loaded->data.delegates[0];
  EXPECT_EQ(blob.size(), 912u);
  EXPECT_EQ(std::memcmp(blob.data() + 4, "XH00", 4), 0);
  EXPECT_TRUE(blob.data() > bytes.data() && blob.data() + blob.size() <= &moved.back() + 1);
}

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
}  // namespace ferry::pte::writer_test
