// Programs with delegates: refusals when they are loaded, and data that their methods share.
#include <gtest/gtest.h>

#include "core/file.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"
#include "runner/memory.h"
#include "runner/method.h"

namespace ferry::runner::delegate_program_test {
namespace {

const std::string kDirectory = FERRY_TESTDATA "/xnnpack/";

struct Program {
  explicit Program(const std::string& name) : file(*MappedFile::open(kDirectory + name + ".pte")) {
    loaded = *pte::read_program(file.bytes(), name);
    auto mapped = MappedFile::open(kDirectory + name + ".ptd");
    if (!mapped) return;
    data_file = std::move(*mapped);
    data = *ptd::read_data_file(data_file.bytes(), name);
    for (const ptd::NamedTensor& tensor : data.tensors) {
      const ptd::Segment& segment = data.segments[tensor.segment];
      external.push_back({tensor.key, tensor.dtype, tensor.sizes,
                          data_file.bytes().subspan(segment.offset, segment.size),
                          tensor.is_tensor});
    }
  }

  pte::Method& method() { return loaded.program.methods[0]; }
  pte::DelegateCall& call() {
    for (pte::Instruction& each : method().instructions) {
      if (auto* call = std::get_if<pte::DelegateCall>(&each)) return *call;
    }
    std::abort();
  }

  Result<std::vector<Method>> load(std::vector<std::string_view> methods, uint64_t memory) {
    MemoryBudget budget(memory);
    return Method::load_all(loaded, methods, external, pool, {}, budget, "p.pte");
  }
  Error error() {
    const auto methods = load({"forward"}, 1 << 24);
    return methods ? Error{} : methods.error();
  }

  ThreadPool pool{2};
  MappedFile file, data_file;
  pte::LoadedProgram loaded;
  ptd::DataFile data;
  std::vector<ExternalTensor> external;
};

void expect_error(const Error& error, ErrorCode code, const std::string& message) {
  EXPECT_EQ(error.code, code);
  EXPECT_EQ(error.message, "p.pte: method 'forward', instruction 0 (delegate 0): " + message);
}

TEST(DelegatedProgram, ArgumentsThatTheGraphHasNot) {
  Program program("linear_8da4w_g32_bias");
  program.call().args.pop_back();
  expect_error(program.error(), ErrorCode::kBadInput, "1 arguments, but the graph has 2");
}

TEST(DelegatedProgram, AnArgumentThatIsNoTensor) {
  Program program("linear_8da4w_g32_bias");
  program.method().values.push_back(int64_t{1});
  program.call().args[0] = static_cast<int32_t>(program.method().values.size()) - 1;
  expect_error(program.error(), ErrorCode::kBadInput, "argument 0 is no tensor");
}

TEST(DelegatedProgram, AnArgumentThatIsNotF32) {
  Program program("linear_8da4w_g32_bias");
  const auto id = static_cast<size_t>(program.call().args[0]);
  std::get<pte::Tensor>(program.method().values[id]).dtype = DType::kI32;
  expect_error(program.error(), ErrorCode::kBadInput,
               "graph value 0: argument 0 must be f32, not i32");
}

TEST(DelegatedProgram, NamedDataThatIsTooShortOrAbsent) {
  Program shorter("linear_8da4w_g32_bias");
  std::span<const std::byte>& bytes = shorter.loaded.data.named[0];
  bytes = bytes.first(bytes.size() - 1);
  EXPECT_EQ(shorter.error().code, ErrorCode::kBadInput);
  EXPECT_NE(shorter.error().message.find("3071 bytes"), std::string::npos)
      << shorter.error().message;

  Program absent("linear_8da8w_pc_ext");
  absent.external.clear();
  EXPECT_EQ(absent.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(absent.error().message.find("p.pte: method 'forward', instruction 0 (delegate 0): "),
            0U);
}

TEST(DelegatedProgram, ABlobThatIsDamaged) {
  Program program("linear_8da4w_g32_bias");
  program.loaded.data.delegates[0] = program.loaded.data.delegates[0].first(40);
  EXPECT_EQ(program.error().code, ErrorCode::kBadInput);
}

TEST(DelegatedProgram, InputsAndOutputsThatOverlap) {
  Program program("ffn_8da4w_g32");
  auto& args = program.call().args;
  auto tensor = [&](int32_t id) -> pte::Tensor& {
    return std::get<pte::Tensor>(program.method().values[static_cast<size_t>(id)]);
  };
  ASSERT_EQ(args.size(), 3U);
  tensor(args[2]).allocation = tensor(args[1]).allocation;
  auto methods = program.load({"forward"}, 1 << 24);
  ASSERT_TRUE(methods) << methods.error().message;
  const std::vector<float> x(64);
  ASSERT_TRUE(methods->at(0).set_input(0, {DType::kF32, {1, 1, 64}, std::as_bytes(std::span(x))}));
  const Status status = methods->at(0).execute();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(" lies over "), std::string::npos);
}

TEST(DelegatedProgram, MethodsShareWeightsAndScratchMemory) {
  Program program("linear_8da4w_g32_bias");
  program.loaded.program.methods.push_back(program.method());
  program.loaded.program.methods[1].name = "other";
  uint64_t least = 0;
  while (!program.load({"forward"}, least)) ++least;
  EXPECT_GT(least, 0U);
  auto both = program.load({"forward", "other"}, least);
  ASSERT_TRUE(both) << both.error().message;
  const std::vector<float> x(64, 1);
  std::vector<std::vector<std::byte>> outputs;
  for (Method& method : *both) {
    ASSERT_TRUE(method.set_input(0, {DType::kF32, {1, 1, 64}, std::as_bytes(std::span(x))}));
    ASSERT_TRUE(method.execute());
    const auto bytes = method.output(0).bytes;
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

}  // namespace
}  // namespace ferry::runner::delegate_program_test
