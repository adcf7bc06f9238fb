// Programs of the official exporter give the results of the official runtime, also where parts are
// delegated to XNNPACK.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/file.h"
#include "formats/ptd/ptd.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::method_official_test {
namespace {

const std::string kDirectory = FERRY_TESTDATA "/";

std::vector<std::byte> read(const std::string& name) {
  std::ifstream file(kDirectory + name, std::ios::binary);
  std::vector<char> text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

bool exists(const std::string& name) { return std::filesystem::exists(kDirectory + name); }

// A program of the fixtures that is loaded with its data file.
struct Official {
  Official(const std::string& program, size_t threads) : name(program), pool(threads) {
    file = *MappedFile::open(kDirectory + name + ".pte");
    loaded = *pte::read_program(file.bytes(), name);
    if (!exists(name + ".ptd")) return;
    data_file = *MappedFile::open(kDirectory + name + ".ptd");
    data = *ptd::read_data_file(data_file.bytes(), name);
    for (const ptd::NamedTensor& tensor : data.tensors) {
      const ptd::Segment& segment = data.segments[tensor.segment];
      external.push_back({tensor.key, tensor.dtype, tensor.sizes,
                          data_file.bytes().subspan(segment.offset, segment.size),
                          tensor.is_tensor});
    }
  }
  Result<Method> load(MethodOptions options = {}) {
    return Method::load(loaded, "forward", external, pool, options, name);
  }

  bool is_delegated() const { return name.starts_with("xnnpack/"); }

  // Returns the program's own script, or the common one of delegated programs.
  std::string script() const {
    const std::string own = name + ".script";
    return exists(own) || !is_delegated() ? own : "xnnpack/rows.script";
  }

  // Returns the inputs of execution `run`, from words of the script or from raw f32 files. It is
  // empty after the last execution.
  std::vector<Values> inputs(size_t run, const Method& method) const {
    std::vector<Values> out;
    if (exists(script())) {
      std::ifstream script_file(kDirectory + script());
      std::string line;
      for (size_t i = 0; i <= run; ++i) {
        if (!std::getline(script_file, line)) return {};
      }
      std::istringstream words(line);
      for (std::string word; words >> word;) out.push_back(parse(word));
      return out;
    }
    const std::string raw = name + ".in" + std::to_string(run) + "_0.bin";
    if (!exists(raw)) return {};
    const std::vector<std::byte> bytes = read(raw);
    out.push_back(decode({DType::kF32, method.input_meta(0).shape, bytes}));
    return out;
  }

  // Parses "i:1,2@1,2" or "f:0.5,2@1,2".
  static Values parse(const std::string& word) {
    Values values{word[0] == 'f' ? DType::kF32 : DType::kI64, {}, {}};
    const size_t at = word.find('@');
    std::istringstream numbers(word.substr(2, at - 2));
    std::istringstream sizes(word.substr(at + 1));
    for (std::string n; std::getline(numbers, n, ',');) values.values.push_back(std::stod(n));
    for (std::string n; std::getline(sizes, n, ',');) values.shape.push_back(std::stoll(n));
    return values;
  }

  std::string name;
  ThreadPool pool;
  MappedFile file, data_file;
  pte::LoadedProgram loaded;
  ptd::DataFile data;
  std::vector<ExternalTensor> external;
};

// Returns the outputs of all executions, which must succeed.
std::vector<std::vector<std::byte>> run_all(Official& official, Method& method) {
  std::vector<std::vector<std::byte>> outputs;
  for (size_t run = 0;; ++run) {
    const std::vector<Values> inputs = official.inputs(run, method);
    if (inputs.empty()) return outputs;
    std::vector<std::vector<std::byte>> bytes;
    for (const Values& input : inputs) bytes.push_back(encode(input));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Status set = method.set_input(i, {inputs[i].dtype, inputs[i].shape, bytes[i]});
      EXPECT_TRUE(set) << set.error().message;
    }
    const Status status = method.execute();
    EXPECT_TRUE(status) << status.error().message;
    if (!status) return outputs;
    for (size_t i = 0; i < method.output_count(); ++i) {
      const std::span<const std::byte> out = method.output(i).bytes;
      outputs.emplace_back(out.begin(), out.end());
    }
  }
}

class OfficialPrograms : public testing::TestWithParam<std::string> {};

TEST_P(OfficialPrograms, GiveTheOfficialResults) {
  Official official(GetParam(), 2);
  auto method = official.load();
  ASSERT_TRUE(method) << method.error().message;
  const auto outputs = run_all(official, *method);
  ASSERT_FALSE(outputs.empty());
  const size_t per_run = method->output_count();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string reference = official.name + ".ref" + std::to_string(i / per_run) + "_" +
                                  std::to_string(i % per_run) + ".bin";
    SCOPED_TRACE(reference);
    const std::vector<std::byte> want_bytes = read(reference);
    const DType dtype = method->output_meta(i % per_run).dtype;
    const Values want = decode({dtype, {}, want_bytes});
    const Values got = decode({dtype, {}, outputs[i]});
    ASSERT_EQ(got.values.size(), want.values.size());
    double largest = 0;
    for (const double value : want.values) largest = std::max(largest, std::abs(value));
    for (size_t k = 0; k < want.values.size(); ++k) {
      ASSERT_NEAR(got.values[k], want.values[k],
                  official.is_delegated() ? 2e-5 * largest
                                          : 1e-6 * std::max(1.0, std::abs(want.values[k])));
    }
  }
}

TEST_P(OfficialPrograms, DoNotDependOnTheNumberOfThreads) {
  Official one(GetParam(), 1);
  Official three(GetParam(), 3);
  Method a = *one.load();
  Method b = *three.load();
  EXPECT_EQ(run_all(one, a), run_all(three, b));
}

TEST_P(OfficialPrograms, StartOverAfterAReset) {
  Official official(GetParam(), 2);
  Method method = *official.load();
  const auto first = run_all(official, method);
  method.reset();
  EXPECT_EQ(run_all(official, method), first);
}

TEST_P(OfficialPrograms, GiveTheSameBitsAsTheirInstructionsStateThem) {
  Official official(GetParam(), 2);
  Method method = *official.load({.poison = true});
  Method literal = *official.load({.poison = true, .literal = true});
  const auto outputs = run_all(official, method);
  EXPECT_EQ(run_all(official, literal), outputs);
}

std::string test_name(const testing::TestParamInfo<std::string>& test) {
  return test.param.substr(test.param.find('/') + 1);
}

INSTANTIATE_TEST_SUITE_P(All, OfficialPrograms,
                         testing::Values("official_pte/dyn", "official_pte/linear_ext",
                                         "official_pte/llama_tiny_ext", "official_pte/qwen35_dyn",
                                         "official_pte/state_init", "official_pte/state_noinit"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Delegated, OfficialPrograms,
                         testing::Values("xnnpack/ffn_8da4w_g32", "xnnpack/linear_8da4w_g32_bias",
                                         "xnnpack/linear_8da8w_pc_ext", "xnnpack/linear_pt2e_qc4w",
                                         "xnnpack/llama_8da4w_e4_ext"),
                         test_name);

}  // namespace
}  // namespace ferry::runner::method_official_test
