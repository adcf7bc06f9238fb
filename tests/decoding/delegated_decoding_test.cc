// A program with delegates of XNNPACK is decoded without allocating memory per token.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file.h"
#include "formats/ptd/ptd.h"
#include "formats/pte/reader.h"
#include "runner/method.h"
#include "tests/decoding/counting_new.h"

namespace ferry::delegated_decoding_test {
namespace {

const std::string kProgram = FERRY_TESTDATA "/xnnpack/llama_8da4w_e4_ext";

TEST(DelegatedDecoding, ATokenAllocatesNothingAfterTheFirst) {
  const MappedFile file = *MappedFile::open(kProgram + ".pte");
  const MappedFile data_file = *MappedFile::open(kProgram + ".ptd");
  const pte::LoadedProgram loaded = *pte::read_program(file.bytes(), "p");
  const ptd::DataFile data = *ptd::read_data_file(data_file.bytes(), "d");
  std::vector<runner::ExternalTensor> external;
  for (const ptd::NamedTensor& tensor : data.tensors) {
    const ptd::Segment& segment = data.segments[tensor.segment];
    external.push_back({tensor.key, tensor.dtype, tensor.sizes,
                        data_file.bytes().subspan(segment.offset, segment.size), tensor.is_tensor});
  }
  for (const size_t threads : {1, 2}) {
    SCOPED_TRACE(threads);
    ThreadPool pool(threads);
    auto method = runner::Method::load(loaded, "forward", external, pool, {}, "p");
    ASSERT_TRUE(method) << method.error().message;
    const std::vector<int64_t> tokens = {1, 2, 3};
    int64_t position = 0;
    const auto call = [&](int64_t count) {
      const std::span<const std::byte> bytes = std::as_bytes(std::span(tokens));
      const runner::TensorView token{
          DType::kI64, {1, count}, bytes.first(static_cast<size_t>(count) * sizeof(int64_t))};
      const runner::TensorView at{DType::kI64, {1}, std::as_bytes(std::span(&position, 1))};
      const uint64_t before = allocations();
      ASSERT_TRUE(method->set_input(0, token));
      ASSERT_TRUE(method->set_input(1, at));
      const Status status = method->execute();
      const uint64_t after = allocations();
      ASSERT_TRUE(status) << status.error().message;
      if (position > 3) {
        EXPECT_EQ(after - before, 0U) << "position " << position;
      }
      position += count;
    };
    call(3);
    for (int token = 0; token < 6; ++token) call(1);
  }
}

}  // namespace
}  // namespace ferry::delegated_decoding_test
