// Plans of static programs: inputs, outputs, dtypes, parts and encodings.
// tests/end_to_end/static_llama_test.cc compares their outputs with ExecuTorch's own static
// programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/program_interface.h"
#include "plan/conversion.h"
#include "proof/calibration.h"
#include "tests/formats/temp_dir.h"

namespace ferry::plan::conversion_static_test {
namespace {

using converters::ProgramStyle;

ConvertOptions static_options(const std::string& checkpoint) {
  ConvertOptions options;
  options.source = std::string(FERRY_TESTDATA) + "/" + checkpoint;
  options.style = ProgramStyle::kStatic;
  options.context_length = 32;
  options.prefill_length = 6;
  return options;
}

Conversion planned(const ConvertOptions& options) {
  auto conversion = plan_conversion(options);
  EXPECT_TRUE(conversion) << conversion.error().message;
  return conversion ? *std::move(conversion) : Conversion{};
}

std::string refusal(const ConvertOptions& options) {
  const auto conversion = plan_conversion(options);
  return conversion ? std::string() : conversion.error().message;
}

const packer::ManifestPort& port(const std::vector<packer::ManifestPort>& ports,
                                 std::string_view name) {
  const auto found = std::ranges::find(ports, name, &packer::ManifestPort::name);
  EXPECT_NE(found, ports.end()) << name;
  return found == ports.end() ? ports.front() : *found;
}

std::vector<std::string> names(const std::vector<packer::ManifestPort>& ports) {
  std::vector<std::string> out;
  for (const packer::ManifestPort& port : ports) out.push_back(port.name);
  return out;
}

TEST(StaticPrograms, HaveThePortsOfStaticLlamaInItsOrder) {
  const Conversion conversion = planned(static_options("golden/gemma3"));
  const packer::ManifestProgram& program = *conversion.plan->manifest().programs().front();
  ASSERT_EQ(program.methods.size(), 2U);
  const int64_t layers = conversion.mapped.config.num_layers,
                kv = conversion.mapped.config.num_kv_heads;
  const int64_t dim = conversion.mapped.config.head_dim,
                vocabulary = conversion.mapped.config.vocab_size;
  for (const auto& [name, ar] : {std::pair{kKvForwardMethod, 1}, {kPrefillForwardMethod, 6}}) {
    const packer::ManifestMethod* method = program.find(name);
    ASSERT_NE(method, nullptr);
    std::vector<std::string> inputs = {"tokens", "attention_mask", "window_mask", "input_pos"};
    std::vector<std::string> outputs = {"logits"};
    for (const char* kind : {"k", "v"}) {
      for (int64_t i = 0; i < layers; ++i) {
        inputs.push_back(std::string(kind) + "_cache_" + std::to_string(i));
        outputs.push_back(std::string("new_") + kind + "_" + std::to_string(i));
      }
    }
    EXPECT_EQ(names(method->inputs), inputs);
    EXPECT_EQ(names(method->outputs), outputs);
    EXPECT_TRUE(method->buffers.empty());
    EXPECT_EQ(port(method->inputs, "tokens").dtype, DType::kI32);
    EXPECT_EQ(port(method->inputs, "input_pos").shape, (Shape{1, ar}));
    EXPECT_EQ(port(method->inputs, "window_mask").shape, (Shape{1, 1, ar, 32}));
    EXPECT_EQ(port(method->inputs, "k_cache_0").shape, (Shape{1, kv, dim, 32 - ar}));
    EXPECT_EQ(port(method->inputs, "v_cache_1").shape, (Shape{1, kv, 32 - ar, dim}));
    EXPECT_EQ(port(method->outputs, "logits").shape, (Shape{1, ar, vocabulary}));
    EXPECT_EQ(port(method->outputs, "new_k_0").shape, (Shape{1, kv, dim, ar}));
    EXPECT_EQ(port(method->outputs, "new_v_0").shape, (Shape{1, kv, ar, dim}));
  }
}

TEST(StaticPrograms, CarryRecurrentStatesAsPorts) {
  const Conversion conversion = planned(static_options("qwen3_5_text"));
  const packer::ManifestProgram& program = *conversion.plan->manifest().programs().front();
  for (const packer::ManifestMethod& method : program.methods) {
    for (const std::string state : {"conv_state_0", "recurrent_state_0"}) {
      const packer::ManifestPort& before = port(method.inputs, state);
      const packer::ManifestPort& after = port(method.outputs, "new_" + state);
      EXPECT_EQ(before.shape, after.shape);
      EXPECT_EQ(before.dtype, DType::kF32);
    }
    EXPECT_EQ(std::ranges::count(names(method.inputs), "k_cache_0"), 0);
    EXPECT_TRUE(method.buffers.empty());
  }
  EXPECT_EQ(conversion.state_bytes, 0U);
}

TEST(StaticPrograms, OfSeveralFilesHaveOnlyTheCachesThatTheyRead) {
  ConvertOptions options = static_options("golden/llama");
  options.shards = 2;
  options.ports.cache = DType::kU8;  // the part that makes an output encodes it
  const Conversion conversion = planned(options);
  const auto programs = conversion.plan->manifest().programs();
  ASSERT_EQ(programs.size(), 2U);
  const packer::ManifestMethod& first = *programs[0]->find(kKvForwardMethod);
  const packer::ManifestMethod& second = *programs[1]->find(kKvForwardMethod);
  std::set<std::string> crossing;
  for (const std::string& name : names(first.outputs)) {
    if (std::ranges::count(names(second.inputs), name) > 0) crossing.insert(name);
  }
  EXPECT_EQ(crossing, (std::set<std::string>{"hidden_states", "rope_cos", "rope_sin"}));
  for (const packer::ManifestProgram* program : programs) {
    const packer::ManifestMethod& method = *program->find(kKvForwardMethod);
    EXPECT_EQ(port(method.inputs, "attention_mask").dtype, DType::kF32);
    for (int64_t layer = 0; layer < conversion.mapped.config.num_layers; ++layer) {
      const bool here = layer >= program->first_layer &&
                        layer < int64_t{program->first_layer} + program->layer_count;
      const auto has = [&](const auto& ports, const std::string& name) {
        return std::ranges::count(names(ports), name + std::to_string(layer)) == 1;
      };
      EXPECT_EQ(has(method.inputs, "k_cache_"), here);
      EXPECT_EQ(has(method.outputs, "new_v_"), here);
    }
  }
}

TEST(StaticPrograms, RefuseWhatTheyCannotDo) {
  ConvertOptions options = static_options("golden/phi4_mini");
  EXPECT_NE(refusal(options).find("give a context length of 24 or less"), std::string::npos);
  options.context_length = 24;
  EXPECT_EQ(refusal(options), "");

  options = static_options("qwen3_5_text");
  options.decode_length = 2;
  EXPECT_NE(refusal(options).find("recurrent states"), std::string::npos);
  const TempDir dir;
  options = static_options("qwen3_5_text");
  std::ifstream file(options.source + "/config.json");
  nlohmann::json config = nlohmann::json::parse(file);
  for (auto& type : config["layer_types"]) type = "linear_attention";
  options.config = dir.write("config.json", config.dump());
  EXPECT_NE(refusal(options).find("no layer of this qwen3_5_text has attention"), std::string::npos)
      << refusal(options);
  options = static_options("golden/llama");
  options.decode_length = 6;
  EXPECT_EQ(refusal(options), "");
  options.decode_length = 7;
  EXPECT_NE(refusal(options).find("decode-length 7: must be from 1 to"), std::string::npos);
  options = static_options("golden/llama");
  options.prefill_length = 32;
  EXPECT_NE(refusal(options).find("prefill-length 32: must be from 1 to 31"), std::string::npos);
}

TEST(Calibration, SpansTheValuesThatWereSeen) {
  ThreadPool pool(2);
  ConvertOptions options = static_options("golden/llama");
  options.ports = {.cache = DType::kU8, .mask = DType::kU8, .logits = DType::kU16};
  ASSERT_TRUE(proof::needs_calibration(options));
  ASSERT_TRUE(proof::calibrate(options, {}, pool));
  EXPECT_FALSE(proof::needs_calibration(options));
  const Conversion conversion = planned(options);
  const auto layers = static_cast<size_t>(conversion.mapped.config.num_layers);
  ASSERT_EQ(options.ports.keys.size(), layers);
  ASSERT_EQ(options.ports.values.size(), layers);
  for (const packer::ManifestMethod& method : conversion.plan->manifest().programs()[0]->methods) {
    for (size_t i = 0; i < layers; ++i) {
      const std::string layer = std::to_string(i);
      EXPECT_EQ(port(method.inputs, "k_cache_" + layer).encoding, options.ports.keys[i]);
      EXPECT_EQ(port(method.outputs, "new_k_" + layer).encoding, options.ports.keys[i]);
      EXPECT_EQ(port(method.inputs, "v_cache_" + layer).encoding, options.ports.values[i]);
    }
    const Encoding mask = *port(method.inputs, "attention_mask").encoding;
    EXPECT_EQ(mask.real(255), 0.0);
    EXPECT_EQ(mask.real(0), -65535.0);
    EXPECT_EQ(port(method.outputs, "logits").encoding, options.ports.logits_encoding);
  }
  ConvertOptions wider = options;
  ASSERT_TRUE(proof::calibrate(wider, {{1, 2, 3}}, pool));
  EXPECT_NE(wider.ports.keys[0], options.ports.keys[0]);
}

// A row of this cache is both keys and values.
TEST(Calibration, OfLatentAttentionSeesItsOneCache) {
  ThreadPool pool(2);
  ConvertOptions options = static_options("golden/deepseek_v3");
  options.ports = {.cache = DType::kU16};
  ASSERT_TRUE(proof::calibrate(options, {}, pool));
  ASSERT_FALSE(options.ports.keys.empty());
  EXPECT_EQ(options.ports.values, options.ports.keys);
  EXPECT_GT(options.ports.values[0].scale, 1e-6F);
}

TEST(Calibration, OfPrefillChangesItsCachesOnly) {
  ThreadPool pool(2);
  ConvertOptions options = static_options("golden/llama");
  options.ports = {.cache = DType::kU8, .logits = DType::kU16};
  ASSERT_TRUE(proof::calibrate(options, {}, pool));
  const converters::PortTypes before = options.ports;
  ASSERT_TRUE(proof::calibrate_prefill(options, {{1, 2, 3}}, pool));
  const converters::PortTypes& ports = options.ports;
  EXPECT_EQ(ports.keys, before.keys);
  EXPECT_EQ(ports.values, before.values);
  EXPECT_EQ(ports.logits_encoding, before.logits_encoding);
  ASSERT_EQ(ports.prefill_keys.size(), ports.keys.size());
  EXPECT_NE(ports.prefill_keys, ports.keys);
  const Conversion conversion = planned(options);
  const packer::ManifestProgram& program = *conversion.plan->manifest().programs()[0];
  for (const bool prefill : {false, true}) {
    const packer::ManifestMethod& method =
        *program.find(prefill ? kPrefillForwardMethod : kKvForwardMethod);
    const auto& keys = prefill ? ports.prefill_keys : ports.keys;
    const auto& values = prefill ? ports.prefill_values : ports.values;
    EXPECT_EQ(port(method.inputs, "k_cache_0").encoding, keys[0]);
    EXPECT_EQ(port(method.outputs, "new_k_1").encoding, keys[1]);
    EXPECT_EQ(port(method.inputs, "v_cache_1").encoding, values[1]);
    EXPECT_EQ(port(method.outputs, "new_v_0").encoding, values[0]);
    EXPECT_EQ(port(method.outputs, "logits").encoding, ports.logits_encoding);
  }
  // Without prompts of its own, prefill_forward has the encodings of kv_forward.
  ASSERT_TRUE(proof::calibrate_prefill(options, {}, pool));
  EXPECT_FALSE(ports.has_prefill_encodings());
  ConvertOptions floats = static_options("golden/llama");
  EXPECT_EQ(proof::calibrate_prefill(floats, {}, pool).error().code, ErrorCode::kUsage);
}

TEST(Calibration, IsTheSameForAnyNumberOfThreads) {
  ConvertOptions one = static_options("golden/qwen3"), two = static_options("golden/qwen3");
  one.ports.cache = two.ports.cache = DType::kU16;
  ThreadPool single(1), several(3);
  ASSERT_TRUE(proof::calibrate(one, {}, single));
  ASSERT_TRUE(proof::calibrate(two, {}, several));
  EXPECT_EQ(one.ports.keys, two.ports.keys);
  EXPECT_EQ(one.ports.values, two.ports.values);
}

// A Hadamard matrix spreads outliers, so the range of keys changes. The range of values does not.
TEST(Calibration, SeesRotatedKeys) {
  ThreadPool pool(2);
  ConvertOptions plain = static_options("golden/qwen3"), rotated = static_options("golden/qwen3");
  plain.ports.cache = rotated.ports.cache = DType::kU8;
  rotated.rotation = converters::Rotation::kR3;
  ASSERT_TRUE(proof::calibrate(plain, {}, pool));
  ASSERT_TRUE(proof::calibrate(rotated, {}, pool));
  EXPECT_NE(plain.ports.keys[0], rotated.ports.keys[0]);
  // The values of the first layer do not depend on rotations.
  EXPECT_EQ(plain.ports.values[0], rotated.ports.values[0]);
}

TEST(Calibration, ReadsPromptsAndRefusesAnythingElse) {
  const TempDir dir;
  const auto read = [&](std::string_view text) {
    dir.write("prompts", text);
    return proof::read_prompts(dir / "prompts");
  };
  EXPECT_EQ(*read("1,2,3\n\n4 5\t6\r\n"), (proof::Prompts{{1, 2, 3}, {4, 5, 6}}));
  EXPECT_EQ(read("1,2\n3,x\n").error().message,
            (dir / "prompts") + ": line 2: expected token ids such as 1,2,3");
  EXPECT_FALSE(read("\n"));
  EXPECT_FALSE(read("1.5"));
  EXPECT_FALSE(read("99999999999999999999"));
  ThreadPool pool(1);
  ConvertOptions options = static_options("golden/llama");
  options.ports.cache = DType::kU8;
  EXPECT_EQ(proof::calibrate(options, {{1, -1}}, pool).error().code, ErrorCode::kUsage);
  EXPECT_EQ(proof::calibrate(options, {std::vector<int64_t>(33, 1)}, pool).error().code,
            ErrorCode::kUsage);
}

}  // namespace
}  // namespace ferry::plan::conversion_static_test
