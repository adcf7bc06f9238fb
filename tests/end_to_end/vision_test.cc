// Vision-language checkpoints: convert, check and verify, for every program kind and precision.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <tuple>

#include "tests/cli/checkpoints.h"

namespace ferry::vision_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line operator+(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

const Line kStatic = {"--program", "static", "--context-length", "112", "--prefill-length", "16"};
const char* const kNames[] = {"smolvlm", "internvl3_hf", "internvl3_opengvlab"};

void convert(const std::string& source, const std::string& bundle, const Line& options = {}) {
  const Outcome outcome = run_ferry(Line{"convert", source, "-o", bundle} + options);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
}

Json manifest_of(const std::string& bundle) {
  return Json::parse(read_bytes(bundle + "/manifest.json"));
}

Json verified(const Line& args) {
  const Outcome outcome = run_ferry(Line{"--json", "verify"} + args);
  EXPECT_EQ(outcome.code, 0) << outcome.err << outcome.out;
  return outcome.json();
}

Json layer(const Json& report, const std::string& name) {
  for (const Json& one : report["layers"]) {
    if (one["name"] == name) return one;
  }
  return nullptr;
}

class VisionBundle : public testing::TestWithParam<std::tuple<const char*, Line>> {};

// Every stage is compared with the reference: tower, features, merged embeddings, layers, caches,
// logits and tokens.
TEST_P(VisionBundle, IsAtParityStageByStage) {
  const auto& [name, options] = GetParam();
  const TempDir dir;
  convert(fixture(std::string("vision/") + name), dir / "b", options + Line{"--dtype", "f32"});
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
  const Json report = verified({dir / "b", "--reference", vision_golden(name)});
  const bool whole = std::string_view(name) != "internvl3_opengvlab";
  EXPECT_EQ(report["cases"].size(), whole ? 2u : 1u);
  for (const Json& one : report["cases"]) EXPECT_EQ(one.value("skipped", ""), "");
  EXPECT_LT(report["metrics"]["max_abs"], 1e-4);
  EXPECT_EQ(report["metrics"]["top1_agreement"], 1.0);
  EXPECT_EQ(report["metrics"]["greedy_match"], report["metrics"]["greedy_total"]);
  EXPECT_EQ(report["metrics"]["greedy_total"], whole ? 32 : 16);
  Line stages = {"vision_last_hidden_state", "image_features"};
  if (whole) stages = stages + Line{"hidden_states.0", "hidden_states.3", "cache.2.value"};
  for (const std::string& stage : stages) {
    ASSERT_FALSE(layer(report, stage).is_null()) << stage;
    EXPECT_LT(layer(report, stage)["max_abs"], 1e-4) << stage;
    EXPECT_GT(layer(report, stage)["sqnr_db"], 100.0) << stage;
  }
}

std::string title(const testing::TestParamInfo<std::tuple<const char*, Line>>& test) {
  static const char* const kTitles[] = {
      "stateful",   "stateful_cut", "stateful_one_program", "static",
      "static_cut", "static_sha",   "static_in_one_file",   "static_one_program"};
  return std::string(std::get<0>(test.param)) + "_" + kTitles[test.index % std::size(kTitles)];
}

INSTANTIATE_TEST_SUITE_P(
    Styles, VisionBundle,
    testing::Combine(testing::ValuesIn(kNames),
                     testing::Values(Line{"--context-length", "112"},
                                     Line{"--shards", "2", "--prefill-length", "16"},
                                     Line{"--layout", "one-program"}, kStatic,
                                     kStatic + Line{"--shards", "2"},
                                     kStatic + Line{"--attention", "sha"},
                                     kStatic + Line{"--shards", "3", "--shards-in-one-file"},
                                     kStatic + Line{"--layout", "one-program"})),
    title);

// The names of methods are those that ExecuTorch's MultimodalRunner loads. That it computes the
// same is tested by tests/conformance/official_runtime.py.
TEST(VisionCheckpoint, ComponentsShareOneProgram) {
  const TempDir dir;
  const std::string source = fixture("vision/smolvlm"), bundle = dir / "b";
  convert(source, bundle, {"--layout", "one-program", "--quantize", "8da8w"});
  const std::string listed = run_ferry({"inspect", bundle + "/model.pte"}).out;
  for (const char* method : {"vision_encoder", "token_embedding", "text_decoder"}) {
    EXPECT_NE(listed.find("method '" + std::string(method) + "'"), std::string::npos) << listed;
  }
  EXPECT_EQ(listed.find("method 'forward'"), std::string::npos) << listed;
  const Json report = verified({bundle, "--checkpoint", source});
  EXPECT_EQ(report["programs"]["compared"], 1);
  const Outcome same = run_ferry({"convert", source, "-o", bundle, "--layout", "one-program",
                                  "--quantize", "8da8w", "--if-changed", "--json"});
  EXPECT_EQ(same.json()["result"]["up_to_date"], true) << same.err;

  const Outcome cut = run_ferry(
      {"convert", source, "-o", dir / "none", "--layout", "one-program", "--shards", "2"});
  EXPECT_EQ(cut.code, 2);
  EXPECT_NE(cut.err.find("--layout one-program: not with 2 shards"), std::string::npos) << cut.err;
}

TEST(VisionCheckpoint, IsProvedBitForBit) {
  for (const char* name : {"smolvlm", "internvl3_opengvlab"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const std::string source = fixture(std::string("vision/") + name);
    convert(source, dir / "b", {"--dtype", "bf16", "--shards", "2"});
    const Json report =
        verified({dir / "b", "--checkpoint", source, "--reference", vision_golden(name)});
    EXPECT_EQ(report["proves"].size(), 4u) << report["proves"];
    EXPECT_TRUE(report["does_not_prove"].empty()) << report["does_not_prove"];
    // Without a reference the images are generated.
    const Json alone = verified({dir / "b", "--checkpoint", source});
    EXPECT_EQ(alone["does_not_prove"].size(), 1u) << alone["does_not_prove"];
    EXPECT_FALSE(layer(alone, "image_features").is_null());
    EXPECT_FALSE(layer(alone, "vision_hidden_states.1").is_null());
  }
}

// The changed weight has no effect on outputs: key biases cancel in the softmax.
TEST(VisionCheckpoint, AWrongWeightOfTheTowerIsNamedByItsKey) {
  const TempDir dir;
  const std::string key = "model.vision_model.encoder.layers.1.self_attn.k_proj.bias";
  const std::string changed = changed_checkpoint(dir, "vision/smolvlm", [&](TensorFile& file) {
    std::string bytes = file.bytes_of(key);
    bytes[0] = static_cast<char>(bytes[0] ^ 1);
    file.set_bytes(key, bytes);
  });
  convert(changed, dir / "b", {"--dtype", "f32"});
  const Outcome outcome =
      run_ferry({"--json", "verify", dir / "b", "--checkpoint", fixture("vision/smolvlm")});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.out.find(key), std::string::npos) << outcome.out;
}

TEST(VisionCheckpoint, AWrongTowerIsFoundAtItsFirstStage) {
  const TempDir dir;
  const std::string wrong =
      changed_config(dir, "vision/smolvlm", {{"vision_config", {{"hidden_act", "mish"}}}});
  EXPECT_EQ(run_ferry({"convert", wrong, "-o", dir / "b"}).code, 4);
  write_bytes(wrong + "/config.json", [&] {
    Json config = Json::parse(read_bytes(fixture("vision/smolvlm/config.json")));
    config["vision_config"]["hidden_act"] = "silu";
    return config.dump();
  }());
  convert(wrong, dir / "b", {"--dtype", "f32"});
  const Outcome outcome =
      run_ferry({"--json", "verify", dir / "b", "--reference", vision_golden("smolvlm")});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_EQ(outcome.json()["first_divergence"]["tensor"], "vision_last_hidden_state")
      << outcome.json()["first_divergence"];
}

// The goldens of both layouts have the same weights.
TEST(VisionLayouts, BothLayoutsOfInternVlGiveTheSameBytes) {
  const TempDir dir;
  convert(fixture("vision/internvl3_hf"), dir / "hf");
  convert(fixture("vision/internvl3_opengvlab"), dir / "chat");
  int data_files = 0;
  for (const auto& [name, bytes] : files_in(dir / "hf")) {
    if (!name.ends_with(".ptd") && !name.ends_with(".pte")) continue;
    data_files += name.ends_with(".ptd");
    EXPECT_TRUE(bytes == read_bytes(dir / ("chat/" + name))) << name;
  }
  EXPECT_EQ(data_files, 3);
  EXPECT_EQ(manifest_of(dir / "hf")["model"]["image_token_id"], 385);
  EXPECT_EQ(manifest_of(dir / "chat")["model"]["image_token_id"], nullptr);
}

// OpenGVLab's config states no id of the placeholder, but its tokenizer has the token.
TEST(VisionLayouts, ThePlaceholderOfTheTokenizerIsStated) {
  const TempDir dir;
  const std::string source = vision_checkpoint(dir, "internvl3_opengvlab");
  convert(source, dir / "chat");
  const Json tokenizer = Json::parse(read_bytes(source + "/tokenizer.json"));
  Json id;
  for (const Json& token : tokenizer["added_tokens"]) {
    if (token["content"] == "<IMG_CONTEXT>") id = token["id"];
  }
  ASSERT_TRUE(id.is_number_integer());
  EXPECT_EQ(manifest_of(dir / "chat")["model"]["image_token_id"], id);
}

TEST(VisionLayouts, NamesInMemoryAreUnderstood) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "vision/internvl3_hf", [](TensorFile& file) {
    const std::pair<std::string, std::string> prefixes[] = {
        {"language_model.lm_head.", "lm_head."},
        {"language_model.model.", "model.language_model."},
        {"vision_tower.", "model.vision_tower."},
        {"multi_modal_projector.", "model.multi_modal_projector."}};
    const nlohmann::ordered_json header = file.header;
    for (const auto& [key, entry] : header.items()) {
      for (const auto& [from, to] : prefixes) {
        if (key.starts_with(from)) file.rename(key, to + key.substr(from.size()));
      }
    }
  });
  convert(source, dir / "memory");
  convert(fixture("vision/internvl3_hf"), dir / "saved");
  for (const char* name : {"vision_encoder.ptd", "decoder-00001-of-00001.ptd"}) {
    EXPECT_TRUE(read_bytes(dir / ("memory/" + std::string(name))) ==
                read_bytes(dir / ("saved/" + std::string(name))))
        << name;
  }
}

TEST(VisionComponents, HaveDtypesOfTheirOwn) {
  const TempDir dir;
  const std::string source = fixture("vision/smolvlm");
  convert(source, dir / "b",
          {"--dtype", "f32", "--component-dtype", "vision_encoder=bf16,token_embedding=f16"});
  const Json manifest = manifest_of(dir / "b");
  const char* const expected[][2] = {
      {"vision_encoder", "bf16"}, {"token_embedding", "f16"}, {"text_decoder", "f32"}};
  ASSERT_EQ(manifest["components"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(manifest["components"][i]["role"], expected[i][0]);
    EXPECT_EQ(manifest["components"][i]["weight_dtype"], expected[i][1]);
  }
  EXPECT_EQ(manifest["model"]["weight_dtype"], "f32");
  EXPECT_EQ(manifest["default_tolerance"], 0.0);
  for (const Json& tensor : manifest["tensors"]) {
    const std::string file = tensor["file"];
    if (tensor["shape"].size() != 2 || file.starts_with("decoder")) {
      EXPECT_EQ(tensor["dtype"], "f32") << tensor["name"];
    } else if (tensor["name"] != "vision.positions.weight") {
      EXPECT_EQ(tensor["dtype"], file.starts_with("vision") ? "bf16" : "f16") << tensor["name"];
    }
  }
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
  verified({dir / "b", "--checkpoint", source, "--reference", vision_golden("smolvlm")});
  verified({dir / "b", "--reference", vision_golden("smolvlm")});
  // Here the vision encoder is f32 and the rest f16.
  convert(source, dir / "c", {"--dtype", "f16", "--component-dtype", "vision_encoder=f32"});
  EXPECT_EQ(manifest_of(dir / "c")["components"][0]["weight_dtype"], "f32");
  EXPECT_EQ(manifest_of(dir / "c")["components"][2]["weight_dtype"], "f16");
  verified({dir / "c", "--checkpoint", source});
  EXPECT_TRUE(read_bytes(dir / "c/vision_encoder.ptd") != read_bytes(dir / "b/vision_encoder.ptd"));
}

TEST(VisionComponents, ShardsCutTheDecoderOnly) {
  const TempDir dir;
  const std::string source = fixture("vision/internvl3_hf");
  convert(source, dir / "one");
  convert(source, dir / "three", {"--shards", "3"});
  const Json manifest = manifest_of(dir / "three");
  EXPECT_EQ(manifest["components"][0]["programs"].size(), 1u);
  EXPECT_EQ(manifest["components"][1]["programs"].size(), 1u);
  EXPECT_EQ(manifest["components"][2]["programs"].size(), 3u);
  for (const char* name :
       {"vision_encoder.pte", "vision_encoder.ptd", "token_embedding.pte", "token_embedding.ptd"}) {
    EXPECT_TRUE(read_bytes(dir / ("one/" + std::string(name))) ==
                read_bytes(dir / ("three/" + std::string(name))))
        << name;
  }
  // Other verbs need no checkpoint: the two bundles are compared with each other.
  EXPECT_EQ(run_ferry({"verify", dir / "three", "--against", dir / "one"}).code, 0);
}

TEST(VisionComponents, TheSameInputGivesTheSameBytes) {
  const TempDir dir;
  for (const Line& options : {Line{}, kStatic}) {
    const std::string name = options.empty() ? "a" : "b";
    convert(fixture("vision/smolvlm"), dir / name, options + Line{"--threads", "1"});
    convert(fixture("vision/smolvlm"), dir / (name + "2"), options + Line{"--threads", "2"});
    EXPECT_TRUE(files_in(dir / name) == files_in(dir / (name + "2")));
  }
}

TEST(VisionReference, IsEmbeddedAndUsed) {
  const TempDir dir;
  convert(fixture("vision/smolvlm"), dir / "b",
          {"--dtype", "f32", "--reference", vision_golden("smolvlm")});
  EXPECT_EQ(verified({dir / "b"})["metrics"]["greedy_total"], 32);
}

// Expects one line of error, and nothing written.
void expect_refused(const Line& args, int code, const std::string& message) {
  const Outcome outcome = run_ferry(args);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("ferry: error: ")) << outcome.err;
  EXPECT_NE((outcome.err + outcome.out).find(message), std::string::npos) << outcome.err;
}

TEST(VisionRefusals, OfConvert) {
  const TempDir dir;
  const std::string source = fixture("vision/smolvlm");
  const Line line = {"convert", source, "-o", dir / "b"};
  expect_refused(line + Line{"--component-dtype", "vision=bf16"}, 2,
                 "--component-dtype 'vision': the model has no such component; it has "
                 "vision_encoder, token_embedding, text_decoder");
  expect_refused(line + Line{"--component-dtype", "vision_encoder=q8"}, 2,
                 "expected ROLE=keep|f32|f16|bf16");
  expect_refused(line + Line{"--component-dtype", "vision_encoder"}, 2,
                 "expected ROLE=keep|f32|f16|bf16");
  expect_refused(line + Line{"--component-dtype", "vision_encoder=f32,,"}, 2, "expected ROLE=");
  expect_refused(line + Line{"--shards", "4"}, 2, "3 layers cannot be cut into 4 parts");
  expect_refused({"convert", fixture("golden/qwen3"), "-o", dir / "b", "--component-dtype",
                  "vision_encoder=bf16"},
                 2, "the model has no such component; it has text_decoder");
  expect_refused(line + Line{"--reference", vision_golden("internvl3_hf")}, 3,
                 "internvl3_hf/golden.safetensors");
  EXPECT_TRUE(files_in(dir.path()).empty());
}

TEST(VisionRefusals, AKeyOfTheTowerIsMissing) {
  const std::string key = "model.vision_model.encoder.layers.1.mlp.fc1.weight";
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "vision/smolvlm", [&](TensorFile& file) {
    file.rename(key, "model.vision_model.encoder.layers.1.mlp.fc7.weight");
  });
  const Outcome outcome = run_ferry({"--json", "convert", source, "-o", dir / "b"});
  EXPECT_EQ(outcome.code, 3);
  const Json document = outcome.json();
  EXPECT_EQ(document["missing"], Json::array({key})) << document["missing"];
  EXPECT_EQ(document["unmapped"],
            Json::array({"model.vision_model.encoder.layers.1.mlp.fc7.weight"}));
  EXPECT_NE(outcome.err.find(key), std::string::npos) << outcome.err;
}

// -- references whose images and placeholders do not fit

std::string changed_golden(const TempDir& dir, const std::function<void(TensorFile&)>& change) {
  TensorFile file(vision_golden("smolvlm"));
  change(file);
  file.write(dir / "golden.safetensors");
  return dir / "golden.safetensors";
}

void set_id(TensorFile& file, const std::string& tensor, int64_t from, int64_t to) {
  std::string bytes = file.bytes_of(tensor);
  for (size_t at = 0; at < bytes.size(); at += sizeof(int64_t)) {
    int64_t id = 0;
    std::memcpy(&id, &bytes[at], sizeof id);
    if (id != from) continue;
    std::memcpy(&bytes[at], &to, sizeof to);
    break;
  }
  file.set_bytes(tensor, bytes);
}

TEST(VisionRefusals, OfReferences) {
  const TempDir dir;
  convert(fixture("vision/smolvlm"), dir / "b", {"--dtype", "f32"});
  const auto refused = [&](const std::string& message,
                           const std::function<void(TensorFile&)>& change) {
    const std::string golden = changed_golden(dir, change);
    expect_refused({"verify", dir / "b", "--reference", golden}, 3, message);
    expect_refused({"convert", fixture("vision/smolvlm"), "-o", dir / "c", "--reference", golden},
                   3, message);
  };
  refused("prompt 'short': 15 placeholders (token 358), but its images give 16 rows",
          [](TensorFile& file) { set_id(file, "short.input_ids", 358, 7); });
  refused("prompt 'long': 15 placeholders (token 358), but its images give 16 rows",
          [](TensorFile& file) { set_id(file, "long.input_ids", 358, 7); });
  refused("pixel_values are [1, 1, 3, 16, 64], the vision encoder takes tiles of [1, 3, 32, 32]",
          [](TensorFile& file) {
            file.header["short.pixel_values"]["shape"] = {1, 1, 3, 16, 64};
          });
  refused("image_features are [1, 32, 32], the text decoder takes rows of 64",
          [](TensorFile& file) {
            file.header["short.image_features"]["shape"] = {1, 32, 32};
          });
}

TEST(VisionRefusals, PromptsWithImagesForABundleOfText) {
  const TempDir dir;
  convert(fixture("golden/qwen3"), dir / "b");
  expect_refused({"verify", dir / "b", "--reference", vision_golden("smolvlm")}, 4,
                 "every prompt needs images, which this bundle does not take");
}

}  // namespace
}  // namespace ferry::vision_test
