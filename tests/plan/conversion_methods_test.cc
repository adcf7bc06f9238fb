// One bundle with a decoder of two methods, for calls of several tokens and for calls of one token.
// The methods share weights, constants and state, and compute what a decoder with one method
// computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "core/program_interface.h"
#include "graph/lower.h"
#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/program_proof.h"
#include "runner/method.h"
#include "tests/formats/temp_dir.h"

namespace ferry::plan::conversion_methods_test {
namespace {

constexpr int64_t kPrefill = 6;
const std::string kDecode = "decode";
const std::string kForward(kForwardMethod);

Conversion planned(const std::string& checkpoint, int32_t shards, int64_t prefill) {
  ConvertOptions options;
  options.source = std::string(FERRY_TESTDATA) + "/" + checkpoint;
  options.shards = shards;
  options.context_length = 32;
  options.prefill_length = prefill;
  options.all_logits = true;
  auto conversion = plan_conversion(options);
  EXPECT_TRUE(conversion) << conversion.error().message;
  return conversion ? *std::move(conversion) : Conversion{};
}

// Returns the bundle of `several` with the programs of `single` as methods `decode`.
packer::BundleInput with_decode(const Conversion& several, const Conversion& single) {
  packer::BundleInput input;
  input.manifest = several.plan->manifest();
  const auto stated = input.manifest.programs();
  packer::BundleInput::Component& decoder = input.components.emplace_back();
  decoder.role = kTextDecoderRole;
  const std::vector<graph::Model>& parts = several.components[0].parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<graph::MethodGraph> methods = parts[i].methods;
    methods.push_back({kDecode, single.components[0].parts[i].methods[0].graph});
    auto lowered = graph::lower(methods, {{"get_max_seq_len", {kPrefill}}});
    EXPECT_TRUE(lowered) << lowered.error().message;
    decoder.parts.push_back({std::make_shared<graph::LoweredProgram>(*std::move(lowered)),
                             &parts[i].weights, stated[i]->first_layer, stated[i]->layer_count});
  }
  return input;
}

std::vector<runner::ExternalTensor> external_tensors(const packer::Bundle& bundle, size_t program) {
  std::vector<runner::ExternalTensor> tensors;
  for (const packer::BundleData* data : bundle.data_of(program)) {
    for (const ptd::NamedTensor& tensor : data->content.tensors) {
      const ptd::Segment& segment = data->content.segments[tensor.segment];
      tensors.push_back({tensor.key, tensor.dtype, tensor.sizes,
                         data->file.bytes().subspan(segment.offset, segment.size)});
    }
  }
  return tensors;
}

// Executes both methods of every program of the text decoder over one state.
class Chain {
 public:
  Chain(const packer::Bundle& bundle, ThreadPool& pool) : bundle_(bundle) {
    for (size_t index : bundle.programs_of(kTextDecoderRole)) {
      for (const packer::ManifestMethod& stated : bundle.entry(index).methods) {
        auto method =
            runner::Method::load(bundle.programs()[index].loaded, stated.name,
                                 external_tensors(bundle, index), pool, {.poison = true}, "p");
        EXPECT_TRUE(method) << method.error().message;
        methods_[{index, stated.name}].emplace_back(*std::move(method));
      }
    }
  }

  // Returns the logits of all tokens of the call.
  std::vector<float> call(const std::string& name, std::vector<int64_t> tokens, int64_t position) {
    std::map<std::string, runner::TensorView> values;
    const auto count = static_cast<int64_t>(tokens.size());
    values["tokens"] = {DType::kI64, {1, count}, std::as_bytes(std::span(tokens))};
    values["input_pos"] = {DType::kI64, {1}, std::as_bytes(std::span(&position, 1))};
    for (size_t index : bundle_.programs_of(kTextDecoderRole)) {
      const packer::ManifestMethod& stated = *bundle_.entry(index).find(name);
      runner::Method& method = methods_.at({index, name})[0];
      for (size_t i = 0; i < stated.inputs.size(); ++i) {
        const auto status = method.set_input(i, values.at(stated.inputs[i].name));
        EXPECT_TRUE(status) << status.error().message;
      }
      const auto status = method.execute();
      EXPECT_TRUE(status) << status.error().message;
      for (size_t i = 0; i < stated.outputs.size(); ++i) {
        values[stated.outputs[i].name] = method.output(i);
      }
      share_state(index, name);
    }
    return runner::probe_floats(values.at("logits"));
  }

 private:
  // Copies the state that one method left in its buffers to the buffers of the other methods.
  void share_state(size_t index, const std::string& from) {
    for (const packer::ManifestBuffer& buffer : bundle_.entry(index).find(from)->buffers) {
      const auto contents = methods_.at({index, from})[0].value(buffer.value);
      ASSERT_TRUE(contents);
      for (const packer::ManifestMethod& other : bundle_.entry(index).methods) {
        if (other.name == from) continue;
        const auto same =
            std::ranges::find(other.buffers, buffer.name, &packer::ManifestBuffer::name);
        ASSERT_NE(same, other.buffers.end());
        ASSERT_TRUE(methods_.at({index, other.name})[0].overwrite(same->value, contents->bytes));
      }
    }
  }

  const packer::Bundle& bundle_;
  std::map<std::pair<size_t, std::string>, std::vector<runner::Method>> methods_;
};

struct Case {
  const char* checkpoint;
  int32_t shards;
};
// Models with attention caches, and with states of linear attention.
const Case kCases[] = {{"llama3_tied", 1}, {"llama3_tied", 2}, {"qwen3_5_text", 2}};

class Methods : public testing::TestWithParam<Case> {
 protected:
  Methods()
      : several(planned(GetParam().checkpoint, GetParam().shards, kPrefill)),
        single(planned(GetParam().checkpoint, GetParam().shards, 1)) {
    write(with_decode(several, single), "both");
  }
  void write(packer::BundleInput input, const std::string& name) {
    const auto plan = packer::BundlePlan::make(std::move(input), *several.mapped.source, 0);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto written = plan->write(dir / name, false, pool, {});
    ASSERT_TRUE(written) << written.error().message;
  }

  TempDir dir;
  ThreadPool pool{2};
  Conversion several, single;
};

TEST_P(Methods, AlternateOverOneState) {
  const auto report = packer::check_bundle(dir / "both", pool);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->ok());
  const auto bundle = packer::Bundle::open(dir / "both", true, pool);
  ASSERT_TRUE(bundle) << bundle.error().message;

  // `alone` uses one method, `turns` uses both.
  Chain alone(*bundle, pool), turns(*bundle, pool);
  const std::vector<int64_t> tokens = {1, 7, 3, 9, 2, 30, 4, 11, 5, 8, 6, 12};
  const auto slice = [&](size_t begin, size_t end) {
    return std::vector<int64_t>(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                tokens.begin() + static_cast<std::ptrdiff_t>(end));
  };
  size_t at = 0;
  for (const auto& [method, count] : std::vector<std::pair<std::string, size_t>>{
           {kForward, 4}, {kDecode, 1}, {kDecode, 1}, {kForward, 5}, {kDecode, 1}}) {
    const auto position = static_cast<int64_t>(at);
    const std::vector<float> want = alone.call(kForward, slice(at, at + count), position);
    const std::vector<float> have = turns.call(method, slice(at, at + count), position);
    ASSERT_EQ(want.size(), count * static_cast<size_t>(several.mapped.config.vocab_size));
    ASSERT_EQ(have.size(), want.size());
    EXPECT_EQ(std::memcmp(have.data(), want.data(), want.size() * sizeof(float)), 0)
        << method << " at position " << at;
    at += count;
  }
}

// The second method adds instructions and values, but neither weights nor constants.
TEST_P(Methods, ShareWhatIsStored) {
  const auto bundle = packer::Bundle::open(dir / "both", true, pool);
  ASSERT_TRUE(bundle) << bundle.error().message;
  const packer::Manifest& one = several.plan->manifest();
  EXPECT_EQ(bundle->manifest().tensors.size(), one.tensors.size());
  for (size_t i = 0; i < bundle->programs().size(); ++i) {
    EXPECT_EQ(bundle->programs()[i].loaded.data.constants.size(),
              several.plan->constants(i).size());
    EXPECT_EQ(bundle->entry(i).state_bytes, one.programs()[i]->state_bytes);
    EXPECT_EQ(bundle->entry(i).methods[0].buffers.size(),
              bundle->entry(i).methods[1].buffers.size());
  }
  for (const packer::ManifestFile& file : bundle->manifest().files) {
    if (!file.path.ends_with(".ptd")) continue;
    const auto same = std::ranges::find(one.files, file.path, &packer::ManifestFile::path);
    ASSERT_NE(same, one.files.end());
    EXPECT_EQ(file.bytes, same->bytes);
  }
}

// The proof of programs covers all of their methods.
TEST_P(Methods, AreAllProved) {
  const auto bundle = packer::Bundle::open(dir / "both", true, pool);
  ASSERT_TRUE(bundle) << bundle.error().message;
  const auto same =
      packer::BundlePlan::make(with_decode(several, single), *several.mapped.source, 0);
  ASSERT_TRUE(same);
  EXPECT_TRUE(proof::compare_programs(*bundle, *same).ok());

  Conversion longer = planned(GetParam().checkpoint, GetParam().shards, 2);
  const auto other =
      packer::BundlePlan::make(with_decode(several, longer), *several.mapped.source, 0);
  ASSERT_TRUE(other);
  const proof::ProgramProof proof = proof::compare_programs(*bundle, *other);
  ASSERT_FALSE(proof.ok());
  EXPECT_NE(proof.different[0].find("decoder-00001-of-0000"), std::string::npos);
  EXPECT_NE(proof.different[0].find(": method 'decode', "), std::string::npos)
      << proof.different[0];
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Methods, testing::ValuesIn(kCases));

}  // namespace
}  // namespace ferry::plan::conversion_methods_test
