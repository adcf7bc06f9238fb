#include "proof/bundled_program_proof.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "core/file.h"
#include "core/interrupt.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// A value as a tensor. Numbers have rank 0.
struct Bytes {
  DType dtype = DType::kI64;
  Shape shape = {};
  std::vector<std::byte> bytes = {};
  runner::TensorView view() const { return {dtype, shape, bytes}; }
};

template <class T>
Bytes scalar(DType dtype, T value) {
  Bytes out{dtype, {}, std::vector<std::byte>(sizeof value)};
  std::memcpy(out.bytes.data(), &value, sizeof value);
  return out;
}

Bytes value_bytes(const pte::TestValue& value) {
  if (const auto* tensor = std::get_if<pte::TestTensor>(&value)) {
    return {tensor->dtype, Shape(tensor->sizes.begin(), tensor->sizes.end()), tensor->data};
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) return scalar(DType::kI64, *integer);
  if (const auto* flag = std::get_if<bool>(&value)) {
    return scalar(DType::kBool, static_cast<uint8_t>(*flag));
  }
  return scalar(DType::kF64, std::get<double>(value));
}

std::vector<double> doubles_of(DType dtype, std::span<const std::byte> bytes) {
  const size_t count = bytes.size() / static_cast<size_t>(dtype_bytes(dtype));
  std::vector<double> values(count);
  if (dtype == DType::kF64) {
    std::memcpy(values.data(), bytes.data(), count * sizeof(double));
    return values;
  }
  std::vector<float> floats(count);
  to_f32(dtype, bytes.data(), floats.data(), count);
  std::ranges::copy(floats, values.begin());
  return values;
}

// Limits the distance of an output from the expected output of a test case.
struct Bound {
  double tolerance = 1e-4;  // per value: absolute, plus relative to the expected value
  bool of_rms = false;      // instead, relative to the root mean square of the output
};

bool is_within(std::span<const double> found, std::span<const double> expected,
               const Bound& bound) {
  double errors = 0, squares = 0;
  bool each = true;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]))) continue;
    const double error = std::abs(found[i] - expected[i]);
    each = each && error <= bound.tolerance + bound.tolerance * std::abs(expected[i]);
    errors += error * error;
  }
  if (!bound.of_rms) return each;
  for (const double value : expected) squares += std::isfinite(value) ? value * value : 0.0;
  return errors <= bound.tolerance * bound.tolerance * squares;
}

// Adds the distance of `found` from `expected` to `result`.
void compare_output(const runner::TensorView& found, const Bytes& expected, const Bound& bound,
                    BundledCase& result) {
  if (found.dtype != expected.dtype || found.shape != expected.shape ||
      found.bytes.size() != expected.bytes.size()) {
    result.max_abs = kInfinite;
    result.within = false;
    return;
  }
  if (!is_castable(found.dtype) && found.dtype != DType::kF64) {
    const bool same = std::ranges::equal(found.bytes, expected.bytes);
    result.max_abs = same ? result.max_abs : kInfinite;
    result.within = result.within && same;
    return;
  }
  const std::vector<double> a = doubles_of(found.dtype, found.bytes);
  const std::vector<double> b = doubles_of(expected.dtype, expected.bytes);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double error = std::abs(a[i] - b[i]);
    result.max_abs = std::isnan(error) ? kInfinite : std::max(result.max_abs, error);
  }
  result.within = result.within && is_within(a, b, bound);
}

// Returns the default bound for the dtype of the weights. Weights in half precision make errors in
// proportion to the largest values of an output, so single small values cannot be judged by their
// own size.
Bound default_bound(const pte::Program& program) {
  Bound bound;
  for (const pte::Method& method : program.methods) {
    for (const pte::Value& value : method.values) {
      const auto* tensor = std::get_if<pte::Tensor>(&value);
      if (tensor == nullptr || tensor->data_index == 0 || tensor->allocation) continue;
      if (tensor->dtype == DType::kF16) bound = {std::max(bound.tolerance, 0.02), true};
      if (tensor->dtype == DType::kBF16) bound = {0.1, true};
    }
  }
  return bound;
}

Result<BundledCase> run_case(runner::Method& method, const pte::TestSuite& suite, size_t index,
                             const Bound& bound, const std::string& name) {
  const pte::TestCase& test = suite.cases[index];
  FERRY_RETURN_IF_ERROR(check_interrupt());
  FERRY_RETURN_IF_ERROR(execute_case(method, test, name));
  if (test.expected.size() != method.output_count()) {
    return bad_input(fmt::format("{}: case {} of method {} expects {} outputs, the method has {}",
                                 name, index, quoted(suite.method), test.expected.size(),
                                 method.output_count()));
  }
  BundledCase result{.method = suite.method, .index = index, .max_abs = 0, .within = true};
  for (size_t i = 0; i < test.expected.size(); ++i) {
    compare_output(method.output(i), value_bytes(test.expected[i]), bound, result);
  }
  return result;
}

}  // namespace

bool BundledProof::parity() const { return std::ranges::all_of(cases, &BundledCase::within); }

Status execute_case(runner::Method& method, const pte::TestCase& test, const std::string& name) {
  if (test.inputs.size() != method.input_count()) {
    return bad_input(fmt::format("{}: a test case has {} inputs, the method takes {}", name,
                                 test.inputs.size(), method.input_count()));
  }
  std::vector<Bytes> inputs;  // the method borrows these tensors
  for (const pte::TestValue& value : test.inputs) inputs.push_back(value_bytes(value));
  for (size_t i = 0; i < inputs.size(); ++i) {
    FERRY_RETURN_IF_ERROR(method.set_input(i, inputs[i].view()));
  }
  return method.execute();
}

bool is_bundled_file(const std::string& path) {
  const auto file = InputFile::open(path);
  std::byte start[8] = {};
  return file && file->size() >= sizeof start && file->read_at(0, start) && pte::is_bundled(start);
}

Result<BundledProof> prove_bundled(const std::string& path, std::optional<double> tolerance,
                                   std::optional<uint64_t> memory, ThreadPool& pool) {
  const std::string name = printable(path);
  const MappedFile file = FERRY_TRY(MappedFile::open(path));
  const pte::BundledProgram bundled = FERRY_TRY(pte::read_bundled(file.bytes(), name));
  const pte::LoadedProgram program = FERRY_TRY(pte::read_program(bundled.program, name));
  const Bound bound = tolerance ? Bound{*tolerance, false} : default_bound(program.program);
  BundledProof proof{.tolerance = bound.tolerance, .cases = {}};
  for (const pte::TestSuite& suite : bundled.suites) {
    if (suite.cases.empty()) continue;
    runner::Method method =
        FERRY_TRY(runner::Method::load(program, suite.method, {}, pool, {.memory = memory}, name));
    for (size_t i = 0; i < suite.cases.size(); ++i) {
      proof.cases.push_back(FERRY_TRY(run_case(method, suite, i, bound, name)));
    }
  }
  if (!proof.cases.empty()) return proof;
  return bad_input(fmt::format("{}: a bundled program without test cases", name));
}

}  // namespace ferry::proof
