// Checkpoints whose matrices are stored quantised, end to end.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>

#include "core/sha256.h"
#include "tests/cli/ferry_process.h"

namespace ferry::quantized_checkpoint_test {
namespace {

using Json = nlohmann::json;

std::string copy_of(const TempDir& dir, const std::string& name) {
  const std::string to = dir / "checkpoint";
  std::filesystem::create_directory(to);
  for (const auto& [file, bytes] : files_in(fixture("quantized/" + name))) {
    write_bytes(to + "/" + file, bytes);
  }
  return to;
}

void edit_config(const std::string& checkpoint, const std::function<void(Json&)>& change) {
  Json config = Json::parse(read_bytes(checkpoint + "/config.json"));
  change(config["quantization_config"]);
  write_bytes(checkpoint + "/config.json", config.dump());
}

class QuantizedCheckpoint : public testing::TestWithParam<const char*> {
 protected:
  std::string path_ = fixture(std::string("quantized/") + GetParam());
  TempDir dir_;
};

TEST_P(QuantizedCheckpoint, IsAtParityWithTheReferencesExactValues) {
  const Outcome made = run_ferry({"convert", path_, "-o", dir_ / "b", "--dtype", "f32"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome verified =
      run_ferry({"verify", dir_ / "b", "--reference", path_ + "/golden.safetensors", "--checkpoint",
                 path_, "--tolerance", "1e-4", "--json"});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

// The weights are those that torch makes of the stored tensors, in the dtype in which the config
// computes.
TEST_P(QuantizedCheckpoint, KeepsTheDtypeOfTheModelThatWasQuantised) {
  const Outcome made = run_ferry({"convert", path_, "-o", dir_ / "b"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Json expected = Json::parse(read_bytes(path_ + "/dequantised.json"));
  std::map<std::string, std::string> digests;  // digests of weights that are made of one module
  const Json manifest = Json::parse(read_bytes(dir_ / "b/manifest.json"));
  for (const Json& tensor : manifest["tensors"]) {
    const std::string key = tensor["sources"][0]["key"];
    if (tensor["shape"].size() == 2) {
      digests[key.substr(0, key.rfind('.')) + ".weight"] = tensor["sha256"];
    }
  }
  size_t compared = 0;
  for (const auto& [key, digest] : expected.items()) {
    if (key.find("experts") != std::string::npos) continue;
    EXPECT_EQ(digests[key], digest) << key;
    ++compared;
  }
  EXPECT_GE(compared, 4u);
}

TEST_P(QuantizedCheckpoint, AccountsForEveryStoredTensorOnce) {
  const Outcome planned = run_ferry({"convert", path_, "-n", "--json"});
  ASSERT_EQ(planned.code, 0) << planned.err;
  std::multiset<std::string> mapped, stored;
  const Json plan = planned.json();
  for (const Json& entry : plan["entries"]) {
    if (entry["source"] != "") mapped.insert(entry["source"].get<std::string>());
  }
  const TensorFile tensors(path_ + "/model.safetensors");
  for (const auto& item : tensors.header.items()) {
    if (item.key() != "__metadata__") stored.insert(item.key());
  }
  EXPECT_EQ(mapped, stored);
}

TEST_P(QuantizedCheckpoint, CanBeQuantisedAnew) {
  const Outcome made = run_ferry({"convert", path_, "-o", dir_ / "b", "--quantize", "8da8w"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome verified = run_ferry({"verify", dir_ / "b", "--checkpoint", path_});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

// Codes are carried if a program can hold them: 4 bits in groups of 32 columns, and 8 bits with a
// scale for each row, without zero points. Scales of 4 bits are bf16, so that those in f16 are
// rounded. Other matrices are quantised anew.
TEST(KeptCodes, AreThoseOfTheCheckpoint) {
  struct Case {
    const char* checkpoint;
    int kept;
    bool exact;
  };
  const TempDir dir;
  for (const auto& [checkpoint, kept, exact] :
       {Case{"ct_group32", 7, true}, Case{"gptq_sym", 7, false}, Case{"ct_int8", 7, true},
        Case{"gptq_v2_int8", 7, true}, Case{"ct_mixed", 1, true}, Case{"awq", 0, false},
        Case{"gptq_act_order", 0, false}, Case{"fp8_block", 0, false}}) {
    SCOPED_TRACE(checkpoint);
    const std::string source = fixture(std::string("quantized/") + checkpoint);
    const Outcome made =
        run_ferry({"convert", source, "-o", dir / "b", "--quantize", "keep", "--overwrite"});
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string anew = kept == 7 ? "" : fmt::format("{} matrices quantised anew", 7 - kept);
    EXPECT_NE(made.err.find(anew), std::string::npos) << made.err;
    EXPECT_EQ(made.err.find("rounded to bf16") != std::string::npos, kept > 0 && !exact);
    const Outcome verified = run_ferry({"verify", dir / "b", "--checkpoint", source, "--json"});
    ASSERT_EQ(verified.code, 0) << verified.err << verified.out;
    int found = 0;
    const Json report = verified.json();
    for (const Json& weight : report["quantization"]["weights"]) {
      const bool is_kept = weight["scheme"].get<std::string>().find(" kept") != std::string::npos;
      if (!is_kept) continue;
      ++found;
      // 999 stands for no error. Rounding to bf16 costs half of a unit in its last place.
      EXPECT_GE(weight["sqnr_db"].get<double>(), exact ? 999.0 : 50.0) << weight["name"];
    }
    EXPECT_EQ(found, kept);
  }
}

// Writes each packed code of a module into a byte of its own, as int-quantized stores it.
void unpack_codes(const std::string& checkpoint) {
  const TensorFile packed(checkpoint + "/model.safetensors");
  TensorFile out = packed;
  out.header = nlohmann::ordered_json::object();
  out.data.clear();
  for (const auto& item : packed.header.items()) {
    const std::string name = item.key(), module = name.substr(0, name.rfind('.'));
    if (name == "__metadata__" || name.ends_with(".weight_shape")) continue;
    auto shape = item.value()["shape"].get<std::vector<int64_t>>();
    std::string bytes = packed.bytes_of(name);
    if (!name.ends_with(".weight_packed")) {
      out.append(name, item.value()["dtype"], shape, bytes);
      continue;
    }
    std::string codes;
    for (const char two : bytes) {
      for (const int shift : {0, 4}) {
        codes += static_cast<char>((static_cast<unsigned char>(two) >> shift & 15) - 8);
      }
    }
    shape[1] *= 8;
    out.append(module + ".weight", "I8", shape, codes);
  }
  out.write(checkpoint + "/model.safetensors");
  edit_config(checkpoint, [](Json& config) { config["format"] = "int-quantized"; });
}

TEST(KeptCodes, OfFourBitsMayHaveBytesOfTheirOwn) {
  const TempDir dir;
  const std::string packed = fixture("quantized/ct_group32"), bytes = copy_of(dir, "ct_group32");
  unpack_codes(bytes);
  std::map<std::string, Json> digests;
  for (const std::string& source : {packed, bytes}) {
    const std::string bundle = dir / (source == packed ? "packed" : "bytes");
    const Outcome made = run_ferry({"convert", source, "-o", bundle, "--quantize", "keep"});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(run_ferry({"verify", bundle, "--checkpoint", source, "-q"}).code, 0);
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    for (const Json& tensor : manifest["tensors"]) {
      digests[source].push_back({tensor["name"], tensor["sha256"]});
    }
  }
  EXPECT_EQ(digests[packed], digests[bytes]);

  TensorFile file(bytes + "/model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  std::string codes = file.bytes_of(name);
  codes[5] = 8;
  file.set_bytes(name, codes);
  file.write(bytes + "/model.safetensors");
  const Outcome made = run_ferry({"convert", bytes, "-o", dir / "b", "--quantize", "keep"});
  EXPECT_EQ(made.code, 3);
  EXPECT_NE(made.err.find("'" + name + "': the code 8 does not have 4 bits"), std::string::npos)
      << made.err;
}

TEST(KeptCodes, MustBeThere) {
  const TempDir dir;
  const Outcome made =
      run_ferry({"convert", fixture("golden/llama"), "-o", dir / "b", "--quantize", "keep"});
  EXPECT_EQ(made.code, 2);
  EXPECT_NE(made.err.find("--quantize keep: the checkpoint has no codes"), std::string::npos)
      << made.err;
}

// Codes that are kept are not calibrated again, and a plain matrix stays as it is.
TEST(KeptCodes, StayWhereOthersAreCalibrated) {
  const TempDir dir;
  const std::string source = fixture("quantized/ct_group32");
  std::string ids;
  for (int i = 0; i < 96; ++i) ids += std::to_string(i * 7 % 64) + (i % 32 == 31 ? "\n" : " ");
  write_bytes(dir / "ids.txt", ids);
  const Outcome made =
      run_ferry({"convert", source, "-o", dir / "b", "--quantize", "keep", "--quantize-rule",
                 "*w2*=8da8w", "--calibrate-weights", dir / "ids.txt"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Json manifest = Json::parse(read_bytes(dir / "b/manifest.json"));
  int kept = 0, calibrated = 0;
  for (const Json& tensor : manifest["tensors"]) {
    const std::string recipe = tensor["recipe"];
    const bool is_codes = tensor.value("output", std::string()).empty();
    kept += is_codes && recipe.find(" kept") != std::string::npos ? 1 : 0;
    calibrated += is_codes && recipe.find(" calibrated") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(kept, 6);
  EXPECT_EQ(calibrated, 1);
  const Outcome verified = run_ferry(
      {"verify", dir / "b", "--checkpoint", source, "--calibrate-weights", dir / "ids.txt"});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

// The digests are those of dequantised.json. A GGUF file is first converted back to Hugging Face
// names.
TEST_P(QuantizedCheckpoint, FilesForOtherToolsHaveTheDequantisedValues) {
  const auto made = [&](const std::string& source, const std::string& format,
                        const std::string& name) {
    const Outcome outcome = run_ferry({"convert", source, "--to", format, "-o", dir_ / name});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return dir_ / name;
  };
  const Json expected = Json::parse(read_bytes(path_ + "/dequantised.json"));
  for (const std::string& hf :
       {made(path_, "hf", "direct"), made(made(path_, "gguf", "m.gguf"), "hf", "back")}) {
    const TensorFile file(hf + "/model.safetensors");
    for (const auto& [key, digest] : expected.items()) {
      ASSERT_TRUE(file.header.contains(key)) << key;
      const std::string bytes = file.bytes_of(key);
      EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(bytes)))), digest) << hf << " " << key;
    }
  }
}

// Codes and scales have the same target as the weight that they make, and no other.
TEST_P(QuantizedCheckpoint, TheAccountOfAFileNamesTheTensorOfEachSource) {
  for (const char* format : {"gguf", "hf"}) {
    const Outcome planned = run_ferry({"convert", path_, "--to", format, "-n", "--json"});
    ASSERT_EQ(planned.code, 0) << planned.err;
    size_t compared = 0;
    const Json account = planned.json();
    for (const Json& entry : account["entries"]) {
      const std::string source = entry["source"];
      const size_t at = source.find("layers.0.self_attn.o_proj.");
      if (at == std::string::npos || entry["targets"].empty()) continue;
      EXPECT_EQ(entry["targets"],
                Json::array({std::string(format) == "hf" ? "model.layers.0.self_attn.o_proj.weight"
                                                         : "blk.0.attn_output.weight"}))
          << source;
      ++compared;
    }
    EXPECT_GE(compared, 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedCheckpoint,
                         testing::Values("awq", "ct_asymmetric", "ct_group32", "ct_fp8_channel",
                                         "ct_int8", "ct_mixed", "fbgemm_fp8", "fp8_block",
                                         "fp8_moe", "fp8_tensor", "gptq_act_order", "gptq_sym",
                                         "gptq_v2_int8"),
                         [](const auto& test) { return std::string(test.param); });

struct Refusal {
  const char* checkpoint;
  const char* change;  // merge patch of quantization_config
  int code;
  const char* says;
};

TEST(QuantizedConfig, IsObeyedOrRefusedByName) {
  const Refusal refusals[] = {
      {"awq", R"({"quant_method": "bitsandbytes"})", 4, "'quantization_config.quant_method'"},
      {"awq", R"({"bits": 3})", 4, "'quantization_config.bits' is 3"},
      {"awq", R"({"version": "gemv"})", 4, "'quantization_config.version'"},
      {"awq", R"({"zero_point": false})", 4, "'quantization_config.zero_point'"},
      {"awq", R"({"group_size": 0})", 3, "'quantization_config.group_size'"},
      {"awq", R"({"group_size": 32})", 3, "qzeros"},
      {"awq", R"({"modules_to_not_convert": ["q_proj"]})", 4, "leaves 'q_proj' out"},
      {"awq", R"({"nibbles": 2})", 4, "'quantization_config.nibbles'"},
      {"awq", R"({"\nferry: error: it\u001b[31m": 2})", 4, R"(config.\nferry: error: it\x1b[31m')"},
      {"gptq_act_order", R"({"dynamic": {"+:.*": {"bits": 8}}})", 4,
       "'quantization_config.dynamic'"},
      {"gptq_act_order", R"({"checkpoint_format": "marlin"})", 4,
       "'quantization_config.checkpoint_format'"},
      {"gptq_v2_int8", R"({"desc_act": true})", 3, "g_idx"},
      {"fp8_block", R"({"weight_block_size": [32, 24]})", 3, "weight_scale_inv"},
      {"fp8_block", R"({"fmt": "e5m2"})", 4, "'quantization_config.fmt'"},
      {"ct_mixed", R"({"format": "nvfp4-pack-quantized"})", 4, "'quantization_config.format'"},
      {"ct_mixed", R"({"sparsity_config": {"format": "sparse-24-bitmask"}})", 4,
       "'quantization_config.sparsity_config'"},
      {"ct_mixed", R"({"config_groups": {"group_1": null}})", 3, "no group of quantization_config"},
      {"../golden/gpt_oss_mxfp4", R"({"modules_to_not_convert": true})", 3,
       "'quantization_config.modules_to_not_convert' is not a list of names"},
      {"ct_int8", R"({"config_groups": {"group_0": {"weights": {"num_bits": 2}}}})", 4,
       "'quantization_config.config_groups.group_0.weights.num_bits' is 2"},
      {"ct_asymmetric", R"({"config_groups": {"group_0": {"weights": {"num_bits": 2}}}})", 4,
       "'quantization_config.config_groups.group_0.weights.num_bits' is 2"},
      {"../golden/bitnet_offline", R"({"use_rms_norm": true})", 4,
       "'quantization_config.use_rms_norm' is true"},
      {"../golden/bitnet_offline", R"({"modules_to_not_convert": ["q_proj"]})", 4,
       "'quantization_config.modules_to_not_convert'"},
      {"../golden/bitnet_offline", R"({"quantization_mode": "sometimes"})", 4,
       "'quantization_config.quantization_mode'"},
      {"../golden/bitnet_offline", R"({"linear_class": "linear"})", 4,
       "'quantization_config.linear_class'"},
  };
  for (const Refusal& refusal : refusals) {
    const TempDir dir;
    const std::string checkpoint = copy_of(dir, refusal.checkpoint);
    edit_config(checkpoint, [&](Json& config) { config.merge_patch(Json::parse(refusal.change)); });
    const Outcome outcome = run_ferry({"convert", checkpoint, "-n"});
    EXPECT_EQ(outcome.code, refusal.code) << refusal.change << outcome.err;
    EXPECT_NE(outcome.err.find(refusal.says), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  }
}

// Weights are rounded to the dtype of the model before quantisation, so this dtype must be known.
TEST(QuantizedConfig, TheDtypeIsOneThatIsKnown) {
  for (const auto& [dtype, code] : {std::pair<Json, int>("float64", 4), {16, 3}}) {
    const TempDir dir;
    const std::string checkpoint = copy_of(dir, "gptq_v2_int8");
    Json config = Json::parse(read_bytes(checkpoint + "/config.json"));
    config["dtype"] = dtype;
    write_bytes(checkpoint + "/config.json", config.dump());
    const Outcome outcome = run_ferry({"convert", checkpoint, "-n"});
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find("config.json: 'dtype' is "), std::string::npos) << outcome.err;
  }
}

// The scales are right, so the error names the codes.
TEST(QuantizedTensors, CodesOfAnotherDtypeAreRefused) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "fbgemm_fp8");
  TensorFile file(checkpoint + "/model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  file.header[name]["dtype"] = "I8";
  file.write(checkpoint + "/model.safetensors");
  const Outcome outcome = run_ferry({"convert", checkpoint, "-n"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("'" + name + "' i8 [32, 48]: quantization_config has no codes of"),
            std::string::npos)
      << outcome.err;
}

// Group indices are checked before they are used.
TEST(QuantizedTensors, ThatDoNotFitAreRefused) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "gptq_act_order");
  TensorFile file(checkpoint + "/model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.g_idx";
  std::string groups = file.bytes_of(name);
  groups[4] = 9;
  file.set_bytes(name, groups);
  file.write(checkpoint + "/model.safetensors");
  const Outcome outcome = run_ferry({"convert", checkpoint, "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("g_idx' names group 9 of 3"), std::string::npos) << outcome.err;
}

// -1 in all places is not supported: the kernels of GPTQ would use the last group.
TEST(QuantizedTensors, GroupsThatAreLeftOutAreRefused) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "gptq_act_order");
  TensorFile file(checkpoint + "/model.safetensors");
  const std::string name = "model.layers.0.mlp.down_proj.g_idx";
  file.set_bytes(name, std::string(file.bytes_of(name).size(), '\xff'));
  file.write(checkpoint + "/model.safetensors");
  const Outcome outcome = run_ferry({"convert", checkpoint, "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("g_idx' names group -1 of 3"), std::string::npos) << outcome.err;
}

TEST(QuantizedTensors, MustBeComplete) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "awq");
  TensorFile file(checkpoint + "/model.safetensors");
  file.rename("model.layers.0.mlp.down_proj.scales", "model.layers.0.mlp.down_proj.scale");
  file.write(checkpoint + "/model.safetensors");
  const Outcome outcome = run_ferry({"convert", checkpoint, "-n"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("'model.layers.0.mlp.down_proj.scales' is missing"), std::string::npos)
      << outcome.err;
}

// The scale 255 stands for NaN.
TEST(QuantizedTensors, AScaleOfMxfp4MustBeANumber) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "../golden/gpt_oss_mxfp4");
  TensorFile file(checkpoint + "/model.safetensors");
  const std::string name = "model.layers.1.mlp.experts.down_proj_scales";
  file.set_bytes(name, std::string(127, 'z') + '\xFF');
  file.write(checkpoint + "/model.safetensors");
  for (const std::vector<std::string>& to : {std::vector<std::string>(), {"--to", "gguf"}}) {
    std::vector<std::string> args = {"convert", checkpoint, "-o", dir / "out.gguf"};
    args.insert(args.end(), to.begin(), to.end());
    const Outcome outcome = run_ferry(args);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_NE(outcome.err.find("down_proj_scales': scale 127 is 255"), std::string::npos)
        << outcome.err;
  }
}

// Two bits have a fourth code.
TEST(QuantizedTensors, CodesOfBitNetAreTernary) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "../golden/bitnet_packed");
  TensorFile file(checkpoint + "/model.safetensors");
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const Json shape = file.header[name]["shape"];
  file.set_bytes(name, std::string(shape[0].get<size_t>() * shape[1].get<size_t>(), '\xFF'));
  file.write(checkpoint + "/model.safetensors");
  const Outcome outcome = run_ferry({"convert", checkpoint, "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("down_proj.weight': the code 3 is not ternary"), std::string::npos)
      << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(dir / "b"));
}

// Other formats have no place for the rounding of inputs, without which it is another model.
TEST(QuantizedTensors, AModelThatRoundsItsInputsBecomesABundleOnly) {
  const TempDir dir;
  for (const char* format : {"hf", "safetensors", "gguf", "pth"}) {
    const Outcome outcome =
        run_ferry({"convert", fixture("golden/bitnet_online"), "-o", dir / "out", "--to", format});
    EXPECT_EQ(outcome.code, 4) << format;
    EXPECT_NE(outcome.err.find("rounds the inputs of its matrices"), std::string::npos)
        << outcome.err;
  }
}

// The scheme belongs to models whose blocks round their inputs.
TEST(QuantizedTensors, ABitNetOfAnotherFamilyIsRefused) {
  const TempDir dir;
  const std::string checkpoint = copy_of(dir, "../golden/bitnet_online");
  Json config = Json::parse(read_bytes(checkpoint + "/config.json"));
  config["model_type"] = "qwen3";
  write_bytes(checkpoint + "/config.json", config.dump());
  const Outcome outcome = run_ferry({"convert", checkpoint, "-n"});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("'quantization_config' is present"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace ferry::quantized_checkpoint_test
