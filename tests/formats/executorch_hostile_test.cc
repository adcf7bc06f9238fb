// Malformed .pte and .ptd files get their verdicts, in messages that name the offender.
#include <sstream>

#include "formats/pte/reader.h"
#include "formats/ptd/ptd.h"
#include "tests/formats/program_files.h"

namespace ferry {
namespace {

struct Verdict {
  std::string file, expected, tensor, reason;
};

std::vector<Verdict> verdicts() {
  std::ifstream list(FERRY_TESTDATA "/hostile/executorch/verdicts.txt");
  std::vector<Verdict> out;
  for (std::string line; std::getline(list, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    Verdict verdict;
    words >> verdict.file >> verdict.expected >> verdict.tensor;
    std::getline(words, verdict.reason);
    out.push_back(verdict);
  }
  return out;
}

Error read(const std::vector<std::byte>& bytes, const std::string& name) {
  if (name.ends_with(".pte")) {
    auto result = pte::read_program(bytes, name);
    return result ? Error{} : result.error();
  }
  auto result = ptd::read_data_file(bytes, name);
  return result ? Error{} : result.error();
}

TEST(ExecutorchHostile, EveryCaseGetsItsVerdict) {
  const auto cases = verdicts();
  ASSERT_EQ(cases.size(), 40u);
  for (const Verdict& verdict : cases) {
    const Error error = read(read_test_file("hostile/executorch/" + verdict.file), verdict.file);
    SCOPED_TRACE(verdict.file + ":" + verdict.reason + " -> " + error.message);
    EXPECT_EQ(error.message.empty(), verdict.expected == "accept");
    if (error.message.empty()) continue;
    EXPECT_NE(error.code, ErrorCode::kInternal);
    EXPECT_TRUE(error.message.starts_with(verdict.file + ": "));
    EXPECT_EQ(error.message.find('\n'), std::string::npos);
    EXPECT_LT(error.message.size(), 400u);
    if (verdict.tensor != "-") {
      EXPECT_NE(error.message.find("'" + verdict.tensor + "'"), std::string::npos);
    }
  }
}

// Whatever byte is changed or wherever the file ends, the reader returns.
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
}  // namespace ferry
