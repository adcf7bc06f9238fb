// Damaged .pte and .ptd files. end_to_end/hostile_files_test.cc tests files that were made to be
// malformed.
#include "formats/pte/reader.h"
#include "formats/ptd/ptd.h"
#include "tests/formats/program_files.h"

namespace ferry::formats::reader_test {
namespace {

Error read(const std::vector<std::byte>& bytes, const std::string& name) {
  if (name.ends_with(".pte")) {
    auto result = pte::read_program(bytes, name);
    return result ? Error{} : result.error();
  }
  auto result = ptd::read_data_file(bytes, name);
  return result ? Error{} : result.error();
}

// The reader returns, whatever byte is changed and wherever the file ends.
TEST(ExecutorchHostile, DamageNeverCrashes) {
  for (const char* name : {"pte_valid.pte", "ptd_valid.ptd"}) {
    const auto valid = read_test_file(std::string("hostile/executorch/") + name);
    for (size_t i = 0; i < valid.size(); ++i) {
      auto bytes = valid;
      for (const int flip : {0x01, 0x80, 0xff}) {
        bytes[i] = valid[i] ^ static_cast<std::byte>(flip);
        read(bytes, name);
      }
      bytes = valid;
      bytes.resize(i);
      EXPECT_FALSE(read(bytes, name).message.empty()) << name << " cut at " << i;
    }
  }
}

TEST(ExecutorchHostile, ReadsFromAnyAddress) {
  const auto valid = read_test_file("hostile/executorch/pte_valid.pte");
  for (size_t shift = 0; shift < 16; ++shift) {
    std::vector<std::byte> moved(shift);
    moved.insert(moved.end(), valid.begin(), valid.end());
    const auto result = pte::read_program(std::span(moved).subspan(shift), "moved.pte");
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->data.constants[2].data(), moved.data() + shift + 1536 + 48);
  }
}

}  // namespace
}  // namespace ferry::formats::reader_test
