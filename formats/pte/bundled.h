// Bundled programs (.bpte) hold a program, inputs of its methods, and the outputs that they must
// give, so that a runtime can test itself without another file.
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

// The bytes are row-major and little-endian.
struct TestTensor {
  DType dtype = DType::kF32;
  std::vector<int32_t> sizes;
  std::vector<std::byte> data;
};
using TestValue = std::variant<TestTensor, int64_t, bool, double>;
// The inputs and outputs of one execution.
struct TestCase {
  std::vector<TestValue> inputs, expected;
};
struct TestSuite {
  std::string method;
  std::vector<TestCase> cases;
};

struct BundledLayout {
  std::vector<std::byte> head;  // all bytes before the program, which ends the file
  uint64_t file_bytes = 0;
};

// Plans a file around a program of `program_bytes` bytes, which begins at a multiple of 32.
// kUnsupported if the file would have 2 GiB or more, because FlatBuffers cannot refer to that much.
Result<BundledLayout> plan_bundled(const std::vector<TestSuite>& suites, uint64_t program_bytes);

// Returns whether the first bytes of a file are those of a bundled program.
bool is_bundled(std::span<const std::byte> file);

struct BundledProgram {
  std::span<const std::byte> program;  // points into the file
  std::vector<TestSuite> suites;
};

// Checks every offset, size, dtype and dimension order, but not the program. `name` begins the
// messages.
Result<BundledProgram> read_bundled(std::span<const std::byte> file, const std::string& name);

// Calls read_program() for a program, or for the program in a bundled one.
Result<LoadedProgram> read_any_program(std::span<const std::byte> file, const std::string& name);

}  // namespace ferry::pte
