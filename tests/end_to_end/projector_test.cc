// Projectors: the text decoder and the vision encoder of a model in two GGUF files, as llama.cpp
// has them. Outputs are those of transformers, and files those of llama.cpp's converter
// (tests/conversion/export_mmproj_test.cc).
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <tuple>

#include "tests/conversion/projector_files.h"
#include "tests/end_to_end/vision_families.h"

namespace ferry::projector_test {
namespace {

using namespace vision_families;
namespace fs = std::filesystem;

// The files of a checkpoint in f32. No name is known of its tokenizer, one for each byte.
struct Pair {
  std::string text, projector;
};
Pair written(const TempDir& dir, const std::string& source) {
  const Pair pair = {dir / "text.gguf", dir / "mmproj.gguf"};
  const Line to = {"--outtype", "f32", "-o"};
  EXPECT_EQ(run_ferry(Line{"convert", source, "--to", "gguf", "--tokenizer-pre", "gpt-2"} + to +
                      Line{pair.text})
                .code,
            0);
  const Outcome outcome =
      run_ferry(Line{"convert", source, "--to", "mmproj"} + to + Line{pair.projector});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return pair;
}

class Projector : public testing::TestWithParam<const char*> {};

// Programs and weights of the two files are those of the checkpoint, byte for byte.
TEST_P(Projector, PairBecomesTheBundleOfTheCheckpoint) {
  const TempDir dir;
  const std::string source = projector_files::checkpoint(dir / "checkpoint", GetParam());
  const Pair pair = written(dir, source);
  const std::string family = GetParam();
  // The most patches of a tile are those of the processor, of which a projector says nothing. The
  // config of LLaVA has layers behind the features.
  const bool stated = family == "lfm2_vl" || family == "gemma4" || family == "llava";
  const Line config = stated ? Line{"--config", source + "/config.json"} : Line();
  const Line options = {"--dtype", "f32", "--inputs", "images", "--prefill-length", "72"};
  const Outcome whole = run_ferry(Line{"convert", source, "-o", dir / "whole"} + options);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome made =
      run_ferry(Line{"convert", pair.text, "--mmproj", pair.projector, "-o", dir / "made"} +
                options + config);
  ASSERT_EQ(made.code, 0) << made.err;
  // The tokenizers of these two name other first and last tokens than their configs.
  const bool other_ids = family == "smolvlm" || family == "internvl3_opengvlab";
  // A file has no order of the mergers of DeepStack, and -exp(A_log) of the recurrent layers.
  const bool deep = family.starts_with("qwen3_vl"), recurrent = family == "qwen3_5";
  int files = 0;
  for (const auto& entry : fs::directory_iterator(dir / "whole")) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".pte") && !name.ends_with(".ptd")) continue;
    ++files;
    if (other_ids && name.starts_with("decoder") && name.ends_with(".pte")) continue;
    if (deep && name.starts_with("vision_encoder")) continue;
    if (recurrent && name.starts_with("decoder") && name.ends_with(".ptd")) continue;
    EXPECT_TRUE(read_bytes(dir / ("made/" + name)) == read_bytes(entry.path())) << name;
  }
  EXPECT_GE(files, 6);
  Line line = {"verify", dir / "made", "--checkpoint", pair.text, "--mmproj", pair.projector};
  if (!projector_files::is_edited(family)) {
    line = line + Line{"--reference", projector_files::golden(family)};
  }
  const Outcome verified = run_ferry(line + config);
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_EQ(run_ferry({"verify", pair.projector, "--checkpoint", source}).code, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Projector, testing::ValuesIn(projector_files::kFamilies));
// llama.cpp's converter does not write these.
INSTANTIATE_TEST_SUITE_P(Others, Projector, testing::Values("llava"));

// Returns a copy of the checkpoint of LLaVA that `change` has edited.
std::string changed_llava(const TempDir& dir, const std::function<void(Json&)>& change) {
  const std::string folder = dir / "changed";
  fs::remove_all(folder);
  projector_files::checkpoint(folder, "llava");
  projector_files::edit(folder + "/config.json", change);
  return folder;
}

TEST(LlavaProjector, WhatReadersTakeOtherwiseIsRefused) {
  const TempDir dir;
  struct Case {
    const char* key;
    Json value;
    const char* message;
  };
  const Case cases[] = {{"vision_feature_select_strategy", "full", "keeps the class token"},
                        {"projector_hidden_act", "silu", "'projector_hidden_act' is not gelu"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.key);
    const std::string folder = changed_llava(dir, [&](Json& config) { config[c.key] = c.value; });
    expect_refused({"convert", folder, "--to", "mmproj", "-o", dir / "p.gguf"}, 4, c.message);
  }
}

// A file without the key of the layers has features from before its last one.
TEST(LlavaProjector, FeaturesAreThoseOfTheKeyOrFromBeforeTheLastLayer) {
  const TempDir dir;
  const std::string source =
      changed_llava(dir, [](Json& config) { config["vision_feature_layer"] = -1; });
  const Pair pair = written(dir, source);
  const auto depth = [&](const std::string& projector, const Line& more = {}) {
    const Outcome outcome = run_ferry(Line{"convert", pair.text, "--mmproj", projector, "-o",
                                           dir / "bundle", "--overwrite", "--dtype", "f32"} +
                                      more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json manifest = Json::parse(read_bytes(dir / "bundle/config.json"));
    return manifest["vision_feature_layer"];
  };
  EXPECT_EQ(depth(pair.projector), Json({3}));
  std::string bytes = read_bytes(pair.projector);
  const std::string key = "clip.vision.feature_layer";
  const size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  const std::string old = dir / "old.gguf";
  write_bytes(old, bytes.replace(at, key.size(), "general.vision_feature.ly"));
  EXPECT_EQ(depth(old), Json({2}));
  // A config states them for such a file alone.
  const Line stated = {"--config", source + "/config.json"};
  EXPECT_EQ(depth(old, stated), Json({3}));
  projector_files::edit(source + "/config.json",
                        [](Json& config) { config["vision_feature_layer"] = 1; });
  EXPECT_EQ(depth(old, stated), Json({1}));
  expect_refused(Line{"convert", pair.text, "--mmproj", pair.projector, "-o", dir / "b"} + stated,
                 3, "features are of the layers 1 of the tower");
}

// The two files answer as transformers answers, without a bundle on a disk.
TEST(ProjectorRun, PicturesAreAnsweredFromTheTwoFiles) {
  const TempDir dir;
  const std::string source = source_of("qwen2_vl");
  const Pair pair = written(dir, source);
  const TensorFile golden(vision_golden("qwen2_vl"));
  const Json cases = cases_of("qwen2_vl");
  for (const auto& [name, one] : cases.items()) {
    SCOPED_TRACE(name);
    const Line prompt = prompt_of(dir, one);
    const Outcome outcome = run_ferry(Line{"--json", "run", pair.text, "--mmproj", pair.projector,
                                           "--config", source + "/config.json", "--max-new", "8",
                                           "--ignore-eos", "--greedy", "--exact"} +
                                      prompt);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.json()["result"]["prompt_tokens"], Json(ids_of(golden, name + ".input_ids")));
    EXPECT_EQ(outcome.json()["result"]["tokens"], Json(ids_of(golden, name + ".greedy_ids")));
  }
}

// A config of the user must be that of the files, and its processor takes the place of the made
// one.
TEST(ProjectorFile, AConfigOfTheUserMustAgree) {
  const TempDir dir;
  const std::string source = projector_files::checkpoint(dir / "checkpoint", "smolvlm");
  const Pair pair = written(dir, source);
  const std::string config = dir / "checkpoint/config.json";
  const auto refused_with = [&](const std::function<void(Json&)>& change, int code,
                                const std::string& message) {
    const std::string kept = read_bytes(config);
    projector_files::edit(config, change);
    expect_refused(
        {"convert", pair.text, "--mmproj", pair.projector, "--config", config, "-o", dir / "b"},
        code, message);
    write_bytes(config, kept);
  };
  refused_with([](Json& c) { c["vision_config"]["intermediate_size"] = 97; }, 3,
               "intermediate_size of the tower is 97");
  refused_with([](Json& c) { c["scale_factor"] = 4; }, 3, "the factor of the connector");
  refused_with([](Json& c) { c["vision_config"]["layer_norm_eps"] = 1e-5; }, 3,
               "another activation or epsilon");
  refused_with([](Json& c) { c["model_type"] = "gemma3"; }, 3, "is not the config of a model of");
  refused_with([](Json& c) { c["model_type"] = 5; }, 3, "is not the config of a model of");
  refused_with([](Json& c) { c["vision_config"] = 5; }, 3, "is not the config of a model of");
  refused_with([](Json& c) { c["text_config"]["intermediate_size"] = 145; }, 3,
               "'intermediate_size' is 145");
  projector_files::edit(dir / "checkpoint/preprocessor_config.json",
                        [](Json& c) { c["size"]["longest_edge"] = 96; });
  const Outcome outcome = run_ferry(
      {"convert", pair.text, "--mmproj", pair.projector, "--config", config, "-o", dir / "b"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(read_bytes(dir / "b/preprocessor_config.json"))["size"]["longest_edge"],
            96);
}

TEST(ProjectorFile, WhatDoesNotFitIsRefused) {
  const TempDir dir;
  const TempDir second;
  const std::string gemma3 = projector_files::checkpoint(dir / "checkpoint", "gemma3");
  const Pair pair = written(dir, gemma3);
  const Pair other = written(second, source_of("qwen2_vl"));
  const auto refused = [&](const Line& line, int code, const std::string& message) {
    expect_refused(Line{"convert"} + line + Line{"-o", dir / "b"}, code, message);
  };
  refused({pair.text, "--mmproj", other.projector}, 4, "and the architecture of the text decoder");
  refused({pair.text, "--mmproj", pair.text}, 2, "its architecture is not clip");
  refused({pair.text, "--mmproj", dir / "none.gguf"}, 5, "none.gguf");
  refused({gemma3, "--mmproj", pair.projector}, 2, "is for a GGUF file");
  refused({pair.projector}, 4, "general.type");
  refused({gemma3, "--mmproj", pair.projector, "--to", "gguf"}, 2, "--mmproj");
  refused({source_of("paligemma"), "--to", "mmproj"}, 4, "writes no projector");
  refused({gemma3, "--to", "mmproj", "--outtype", "q4_0"}, 2, "projectors are");
  refused({fixture("golden/llama"), "--to", "mmproj"}, 4, "builds no vision tower");
  // A layer without one of its tensors, and a key that no reader of the kind knows.
  std::string bytes = read_bytes(pair.projector);
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string copy = bytes;
    const size_t at = copy.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    copy.replace(at, from.size(), to);
    write_bytes(dir / "damaged.gguf", copy);
  };
  damaged("v.blk.1.attn_k.weight", "v.blk.9.attn_k.weight");
  refused({pair.text, "--mmproj", dir / "damaged.gguf"}, 3, "v.blk.1.attn_k.weight");
  damaged("clip.vision.patch_size", "clip.vision.patch_sise");
  refused({pair.text, "--mmproj", dir / "damaged.gguf"}, 3, "clip.vision.patch_size");
  damaged("clip.use_gelu", "clip.use_nelu");
  refused({pair.text, "--mmproj", dir / "damaged.gguf"}, 4, "clip.use_gelu");
  damaged("clip.vision.projection_dim", "clip.vision.projection_dam");
  refused({pair.text, "--mmproj", dir / "damaged.gguf"}, 3, "projection_dim");
  EXPECT_FALSE(fs::exists(dir / "b"));
}

}  // namespace
}  // namespace ferry::projector_test
