// A file is made as the FlatBuffer of everything but the program. That FlatBuffer ends with one
// block of zeros in the place of the program. The block is removed, its length is set to that of
// the program, and the program follows. Thus a model is never in memory as a whole.
#include "formats/pte/bundled.h"

#include <bundled_generated.h>
#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <utility>

#include "core/checked.h"
#include "core/dim_order.h"
#include "core/dtype.h"
#include "core/text.h"
#include "formats/pte/flat_file.h"
#include "formats/pte/validate.h"
#include "formats/ptn/package.h"

namespace ferry::pte {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr size_t kAlignment = 32;    // alignment of the program
constexpr size_t kMaxCases = 65536;  // of all methods together

// -- writing

Offset<bundled_wire::Value> encode(FlatBufferBuilder& b, const TestValue& value) {
  if (const auto* tensor = std::get_if<TestTensor>(&value)) {
    std::vector<uint8_t> dim_order(tensor->sizes.size());
    std::iota(dim_order.begin(), dim_order.end(), uint8_t{0});
    const auto order = b.CreateVector(dim_order);
    b.ForceVectorAlignment(tensor->data.size(), 1, 16);
    const auto data =
        b.CreateVector(reinterpret_cast<const uint8_t*>(tensor->data.data()), tensor->data.size());
    const auto sizes = b.CreateVector(tensor->sizes);
    const auto type = static_cast<int8_t>(dtype_info(tensor->dtype).executorch);
    const auto made = bundled_wire::CreateTensor(b, type, sizes, data, order);
    return bundled_wire::CreateValue(b, bundled_wire::ValueUnion::Tensor, made.Union());
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    return bundled_wire::CreateValue(b, bundled_wire::ValueUnion::Int,
                                     bundled_wire::CreateInt(b, *integer).Union());
  }
  if (const auto* flag = std::get_if<bool>(&value)) {
    return bundled_wire::CreateValue(b, bundled_wire::ValueUnion::Bool,
                                     bundled_wire::CreateBool(b, *flag).Union());
  }
  return bundled_wire::CreateValue(b, bundled_wire::ValueUnion::Double,
                                   bundled_wire::CreateDouble(b, std::get<double>(value)).Union());
}

auto encode(FlatBufferBuilder& b, const std::vector<TestValue>& values) {
  std::vector<Offset<bundled_wire::Value>> made;
  for (const TestValue& value : values) made.push_back(encode(b, value));
  return b.CreateVector(made);
}

Offset<bundled_wire::TestSuite> encode(FlatBufferBuilder& b, const TestSuite& suite) {
  std::vector<Offset<bundled_wire::TestCase>> cases;
  for (const TestCase& each : suite.cases) {
    const auto inputs = encode(b, each.inputs);
    const auto expected = encode(b, each.expected);
    cases.push_back(bundled_wire::CreateTestCase(b, inputs, expected));
  }
  const auto list = b.CreateVector(cases);
  return bundled_wire::CreateTestSuite(b, b.CreateString(suite.method), list);
}

uint64_t bytes_of(const std::vector<TestSuite>& suites) {
  uint64_t bytes = 0;
  for (const TestSuite& suite : suites) {
    for (const TestCase& each : suite.cases) {
      for (const auto* values : {&each.inputs, &each.expected}) {
        for (const TestValue& value : *values) {
          const auto* tensor = std::get_if<TestTensor>(&value);
          bytes += tensor != nullptr ? tensor->data.size() : 0;
        }
      }
    }
  }
  return bytes;
}

Status check_size(uint64_t bytes) {
  if (bytes < ferry::wire::kMaxFlatBufferBytes) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("a bundled program has less than 2 GiB, this one would have {}",
                          human_bytes(bytes)));
}

// -- reading

class Reader {
 public:
  Reader(const std::string& name, uint64_t file_bytes) : name_(name), left_(file_bytes) {}

  Result<std::vector<TestSuite>> suites(const bundled_wire::BundledProgram& root) {
    std::vector<TestSuite> out;
    if (root.method_test_suites() == nullptr) return out;
    for (const bundled_wire::TestSuite* suite : *root.method_test_suites()) {
      if (suite == nullptr || suite->method_name() == nullptr) {
        return bad("a test suite has no method");
      }
      FERRY_RETURN_IF_ERROR(take(sizeof(uint32_t) + suite->method_name()->size()));
      out.push_back({suite->method_name()->str(), {}});
      where_ = quoted(out.back().method);
      FERRY_RETURN_IF_ERROR(cases(*suite, out.back()));
    }
    return out;
  }

 private:
  Failure bad(std::string_view what) const {
    return bad_input(fmt::format("{}: bundled program: {}{}", name_, what,
                                 where_.empty() ? "" : fmt::format(" (method {})", where_)));
  }

  // Several offsets may refer to one value. All values together may take no more bytes than the
  // file has.
  Status take(uint64_t bytes) {
    if (bytes > left_) return bad("its values have more bytes than the file");
    left_ -= bytes;
    return {};
  }

  Status cases(const bundled_wire::TestSuite& suite, TestSuite& out) {
    if (suite.test_cases() == nullptr) return {};
    for (const bundled_wire::TestCase* each : *suite.test_cases()) {
      if (each == nullptr || ++cases_ > kMaxCases) return bad("too many test cases, or none");
      TestCase& added = out.cases.emplace_back();
      added.inputs = FERRY_TRY(values(each->inputs()));
      added.expected = FERRY_TRY(values(each->expected_outputs()));
    }
    return {};
  }

  Result<std::vector<TestValue>> values(
      const flatbuffers::Vector<Offset<bundled_wire::Value>>* list) {
    std::vector<TestValue> out;
    if (list == nullptr) return out;
    for (const bundled_wire::Value* value : *list) {
      if (value == nullptr || value->val() == nullptr) return bad("a value is absent");
      FERRY_RETURN_IF_ERROR(take(sizeof(uint32_t)));
      switch (value->val_type()) {
        case bundled_wire::ValueUnion::Tensor:
          out.emplace_back(FERRY_TRY(tensor(*value->val_as_Tensor())));
          break;
        case bundled_wire::ValueUnion::Int:
          out.emplace_back(value->val_as_Int()->int_val());
          break;
        case bundled_wire::ValueUnion::Bool:
          out.emplace_back(value->val_as_Bool()->bool_val());
          break;
        case bundled_wire::ValueUnion::Double:
          out.emplace_back(value->val_as_Double()->double_val());
          break;
        default:
          return bad("a value of an unknown kind");
      }
    }
    return out;
  }

  Result<TestTensor> tensor(const bundled_wire::Tensor& in) {
    TestTensor out;
    const auto dtype = dtype_from_executorch(in.scalar_type());
    if (!dtype) return bad(fmt::format("scalar type {}", in.scalar_type()));
    out.dtype = *dtype;
    out.sizes = ferry::wire::copy_vector<int32_t>(in.sizes());
    if (out.sizes.size() > kMaxRank) return bad("a tensor of more than 16 dimensions");
    const auto order = ferry::wire::copy_vector<uint8_t>(in.dim_order());
    if (order.size() != out.sizes.size()) return bad("a tensor with another number of dimensions");
    if (!is_permutation(order)) return bad("an order of dimensions that is no permutation");
    Shape shape(out.sizes.begin(), out.sizes.end());
    const auto count = checked_numel(shape);
    const auto bytes = count ? checked_mul<int64_t>(*count, dtype_bytes(out.dtype)) : std::nullopt;
    const uint64_t stored = in.data() == nullptr ? 0 : in.data()->size();
    if (!bytes || *bytes < 0 || static_cast<uint64_t>(*bytes) != stored) {
      return bad(fmt::format("a tensor {} of {} bytes", to_string(shape), stored));
    }
    FERRY_RETURN_IF_ERROR(take(stored));
    if (stored > 0) {
      const auto* data = reinterpret_cast<const std::byte*>(in.data()->Data());
      out.data.resize(stored);
      copy_row_major({data, stored}, shape, order, dtype_bytes(out.dtype), out.data.data());
    }
    return out;
  }

  const std::string& name_;
  std::string where_;  // name of the method
  size_t cases_ = 0;
  uint64_t left_;  // bytes that further values may have
};

}  // namespace

Result<BundledLayout> plan_bundled(const std::vector<TestSuite>& suites, uint64_t program_bytes) {
  FERRY_RETURN_IF_ERROR(check_size(bytes_of(suites) + program_bytes));
  FlatBufferBuilder b;
  b.ForceVectorAlignment(kAlignment, 1, kAlignment);
  const auto program = b.CreateVector(std::vector<uint8_t>(kAlignment));  // first: last in the file
  std::vector<Offset<bundled_wire::TestSuite>> made;
  for (const TestSuite& suite : suites) made.push_back(encode(b, suite));
  const auto list = b.CreateVector(made);
  bundled_wire::FinishBundledProgramBuffer(b,
                                           bundled_wire::CreateBundledProgram(b, 0, list, program));
  const auto* bytes = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  const auto* placed = bundled_wire::GetBundledProgram(bytes)->program()->Data();
  const auto begin = static_cast<size_t>(reinterpret_cast<const std::byte*>(placed) - bytes);
  if (begin + kAlignment != b.GetSize() || begin % kAlignment != 0) {
    return fail(ErrorCode::kInternal, "the program is not the end of its bundled program");
  }
  BundledLayout layout{.head = {bytes, bytes + begin}, .file_bytes = begin + program_bytes};
  FERRY_RETURN_IF_ERROR(check_size(layout.file_bytes));
  ferry::wire::store(std::span(layout.head), begin - sizeof(uint32_t),
                     static_cast<uint32_t>(program_bytes));
  return layout;
}

bool is_bundled(std::span<const std::byte> file) {
  return file.size() >= ferry::wire::kPreambleBytes &&
         bundled_wire::BundledProgramBufferHasIdentifier(file.data());
}

Result<BundledProgram> read_bundled(std::span<const std::byte> file, const std::string& name) {
  const auto* root = FERRY_TRY(ferry::wire::verified_root<bundled_wire::BundledProgram>(
      file, bundled_wire::BundledProgramIdentifier(), name));
  if (root->version() != 0) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: bundled program of version {}", name, root->version()));
  }
  if (root->program() == nullptr) {
    return bad_input(fmt::format("{}: bundled program: there is no program", name));
  }
  BundledProgram out;
  const auto* data = reinterpret_cast<const std::byte*>(root->program()->Data());
  out.program = {data, root->program()->size()};
  out.suites = FERRY_TRY(Reader(name, file.size()).suites(*root));
  return out;
}

Result<LoadedProgram> read_any_program(std::span<const std::byte> file, const std::string& name) {
  if (ptn::is_package(file)) {
    return fail(ErrorCode::kUnsupported,
                name +
                    ": a native package of ExecuTorch (.ptn); inspect and check read it, "
                    "programs that run are .pte files");
  }
  if (!is_bundled(file)) return read_program(file, name);
  return read_program(FERRY_TRY(read_bundled(file, name)).program, name);
}

}  // namespace ferry::pte
