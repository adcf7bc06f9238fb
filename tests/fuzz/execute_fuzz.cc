// Input: a .pte file. A method that loads is executed twice, on inputs of zeros. After reset() the
// outputs must equal those of the first execution.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/thread_pool.h"
#include "formats/pte/reader.h"
#include "runner/method.h"
#include "tests/fuzz/require.h"

namespace ferry::execute_fuzz {
namespace {

constexpr uint64_t kMaxMemory = 1 << 22;  // limit of the bytes of planned memory, and of one tensor

// Returns false for programs that would only take long: those with loops, because their data
// decides the number of iterations, and those with large tensors.
bool is_small(const pte::Method& method) {
  uint64_t memory = 0;
  for (const uint64_t bytes : method.memory_bytes) {
    if (bytes > kMaxMemory || (memory += bytes) > kMaxMemory) return false;
  }
  for (const pte::Value& value : method.values) {
    const auto* tensor = std::get_if<pte::Tensor>(&value);
    if (tensor != nullptr && pte::tensor_bytes(*tensor).value_or(kMaxMemory + 1) > kMaxMemory) {
      return false;
    }
  }
  for (size_t i = 0; i < method.instructions.size(); ++i) {
    const auto* jump = std::get_if<pte::JumpFalseCall>(&method.instructions[i]);
    if (jump != nullptr && jump->destination <= static_cast<int64_t>(i)) return false;
  }
  return true;
}

using Outputs = std::vector<std::vector<std::byte>>;

// Executes with inputs of their largest shapes. Returns nothing where the method refuses them or
// fails.
Outputs execute(runner::Method& method) {
  static const std::vector<std::byte> zeros(kMaxMemory);
  for (size_t i = 0; i < method.input_count(); ++i) {
    runner::TensorView input = method.input_meta(i);
    uint64_t bytes = static_cast<uint64_t>(dtype_bytes(input.dtype));
    for (const int64_t size : input.shape) bytes *= static_cast<uint64_t>(size);
    input.bytes = std::span(zeros).first(bytes);
    const Status set = method.set_input(i, input);
    if (!set) return require_good_message(set.error()), Outputs();
  }
  const Status done = method.execute();
  if (!done) return require_good_message(done.error()), Outputs();
  Outputs outputs;
  for (size_t i = 0; i < method.output_count(); ++i) {
    const auto bytes = method.output(i).bytes;
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

void run(std::span<const std::byte> file) {
  static ThreadPool pool(1);
  const auto loaded = pte::read_program(file, "f");
  if (!loaded) return require_good_message(loaded.error());
  for (const pte::Method& each : loaded->program.methods) {
    if (!is_small(each)) continue;
    auto method = runner::Method::load(*loaded, each.name, {}, pool, {}, "f");
    if (!method) {
      require_good_message(method.error());
      continue;
    }
    const Outputs first = execute(*method);
    execute(*method);  // starts from the state after the first execution
    method->reset();
    require(execute(*method) == first);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  run(std::as_bytes(std::span(data, size)));
  return 0;
}

}  // namespace ferry::execute_fuzz
