// Bundled programs (.bpte): a program with inputs of its methods and the outputs that they must
// give, so that a runtime can prove itself without another file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "formats/pte/reader.h"

namespace ferry::pte {

// Row-major, little-endian.
struct TestTensor {
  DType dtype = DType::kF32;
  std::vector<int32_t> sizes;
  std::vector<std::byte> data;
};
using TestValue = std::variant<TestTensor, int64_t, bool, double>;
// One execution.
struct TestCase {
  std::vector<TestValue> inputs, expected;
};
struct TestSuite {
  std::string method;
  std::vector<TestCase> cases;
};

struct BundledLayout {
  std::vector<std::byte> head;  // everything before the program, which ends the file
  uint64_t file_bytes = 0;
};

// Plans a file around a program of `program_bytes`, which begins at a multiple of 32. kUnsupported
// where the file would have 2 GiB or more, which FlatBuffers cannot refer to.
Result<BundledLayout> plan_bundled(const std::vector<TestSuite>& suites, uint64_t program_bytes);

// Whether the first bytes of a file are those of a bundled program.
bool is_bundled(std::span<const std::byte> file);

struct BundledProgram {
  std::span<const std::byte> program;  // in the file
  std::vector<TestSuite> suites;
};

// Every offset, size, dtype and dimension order is checked; the program is not. `name` begins the
// messages. kUnsupported for tensors that are not row-major.
Result<BundledProgram> read_bundled(std::span<const std::byte> file, const std::string& name);

// read_program() of a program, or of that in a bundled one.
Result<LoadedProgram> read_any_program(std::span<const std::byte> file, const std::string& name);

}  // namespace ferry::pte
