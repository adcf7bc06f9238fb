// --attention, --softmax and --rotate of static programs: refusals, and the statements of a bundle.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/ferry_process.h"

namespace ferry::static_attention_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

Line static_line(const std::string& checkpoint, const std::string& out, const Line& more) {
  Line line = {"convert", fixture(checkpoint), "-o", out, "--program", "static", "--context-length",
               "48",      "--prefill-length",  "8"};
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

Json converted(const std::string& checkpoint, const std::string& out, const Line& more) {
  const Outcome done = run_ferry(static_line(checkpoint, out, more));
  EXPECT_EQ(done.code, 0) << done.err;
  const Outcome checked = run_ferry({"check", out});
  EXPECT_EQ(checked.code, 0) << checked.err;
  return Json::parse(files_in(out).at("manifest.json"));
}

// Returns the contents of a bundle's tensors, by name.
std::map<std::string, std::string> tensors_of(const std::string& bundle, const Json& manifest) {
  std::map<std::string, std::string> tensors;
  const auto files = files_in(bundle);
  for (const Json& tensor : manifest["tensors"]) {
    tensors[tensor["name"]] = files.at(tensor["file"]).substr(tensor["offset"], tensor["bytes"]);
  }
  return tensors;
}

const Json& tensor_of(const Json& manifest, const std::string& name) {
  const Json& tensors = manifest["tensors"];
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Json& tensor) { return tensor["name"] == name; });
  EXPECT_NE(found, tensors.end()) << name;
  return *found;
}

TEST(StaticAttention, IsRefusedByNameInTheStatefulStyle) {
  for (const Line& option :
       {Line{"--attention", "sha"}, {"--softmax", "masked"}, {"--rotate", "r3"}}) {
    Line line = {"convert", fixture("llama3_tied"), "--dry-run"};
    line.insert(line.end(), option.begin(), option.end());
    const Outcome refused = run_ferry(line);
    EXPECT_EQ(refused.code, 2);
    EXPECT_EQ(refused.err,
              "ferry: error: " + option[0] + " " + option[1] + ": only with --program static\n");
  }
}

TEST(StaticAttention, R3WantsAPowerOfTwo) {
  const TempDir dir;
  Json config = Json::parse(files_in(fixture("llama3_tied")).at("config.json"));
  config["head_dim"] = 24;
  const std::string path = dir.write("config.json", config.dump());
  const Outcome refused =
      run_ferry(static_line("llama3_tied", dir / "b", {"--rotate", "r3", "--config", path}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.err, "ferry: error: --rotate r3: head_dim is 24, not a power of two\n");
}

TEST(StaticAttention, TheDryRunAndTheManifestSayHowProgramsAttend) {
  const TempDir dir;
  const Line options = {"--attention", "sha", "--softmax", "masked", "--rotate", "r3"};
  Line dry = static_line("qwen3_5_text", dir / "b", options);
  dry.push_back("--dry-run");
  const Outcome plan = run_ferry(dry);
  EXPECT_NE(
      plan.out.find("\nattention: single-head (sha), masked softmax, queries and keys rotated "
                    "(r3)\n"),
      std::string::npos)
      << plan.out;
  const Json manifest = converted("qwen3_5_text", dir / "b", options);
  EXPECT_EQ(manifest["model"]["attention"], "sha");
  EXPECT_EQ(manifest["model"]["softmax"], "masked");
  EXPECT_EQ(manifest["model"]["rotate"], "r3");
  const Json usual = converted("qwen3_5_text", dir / "usual", {});
  EXPECT_EQ(usual["model"]["attention"], "mha");
  EXPECT_EQ(usual["model"]["softmax"], "plain");
  EXPECT_EQ(usual["model"]["rotate"], "none");
  const Outcome plain = run_ferry(static_line("qwen3_5_text", dir / "c", {}));
  EXPECT_EQ(plain.out.find("attention:"), std::string::npos);
}

// For every dtype and number of programs, the weights of heads are parts of the whole weight, and
// have its rule and its sources. All other weights are unchanged.
TEST(StaticAttention, WeightsOfHeadsAreTheWholeOnesInParts) {
  for (const Line& options : {Line{}, {"--dtype", "bf16"}, {"--dtype", "f16", "--shards", "2"}}) {
    for (const char* checkpoint : {"llama3_tied", "qwen3_5_text"}) {
      SCOPED_TRACE(checkpoint + testing::PrintToString(options));
      const TempDir dir;
      Line sha = options;
      sha.insert(sha.end(), {"--attention", "sha"});
      const Json before = converted(checkpoint, dir / "mha", options);
      const Json after = converted(checkpoint, dir / "sha", sha);
      const auto whole = tensors_of(dir / "mha", before), parts = tensors_of(dir / "sha", after);
      size_t cut = 0, taken = 0;
      for (const auto& [name, bytes] : whole) {
        if (parts.contains(name)) {
          EXPECT_EQ(parts.at(name), bytes) << name;
          taken += 1;
          continue;
        }
        const std::string stem = name.substr(0, name.rfind('.')), leaf = name.substr(stem.size());
        std::string joined;
        for (size_t head = 0; parts.contains(stem + "." + std::to_string(head) + leaf); ++head) {
          const std::string part = stem + "." + std::to_string(head) + leaf;
          joined += parts.at(part);
          EXPECT_EQ(tensor_of(after, part)["rule"], tensor_of(before, name)["rule"]);
          EXPECT_EQ(tensor_of(after, part)["sources"], tensor_of(before, name)["sources"]);
          taken += 1;
        }
        EXPECT_EQ(joined, bytes) << name;
        cut += 1;
      }
      EXPECT_GE(cut, 2U);
      EXPECT_EQ(taken, parts.size());
    }
  }
}

TEST(StaticAttention, TheDocumentListsTheWeightsOfHeads) {
  const TempDir dir;
  Line line = static_line("llama3_tied", dir / "b", {"--attention", "sha", "--json"});
  const Json document = run_ferry(line).json();
  for (const Json& entry : document["entries"]) {
    if (entry["source"] != "model.layers.1.self_attn.q_proj.weight") continue;
    EXPECT_EQ(entry["targets"][1], "layers.1.attention.wq.1.weight");
    EXPECT_EQ(entry["transform"].get<std::string>().rfind("rows 0..", 0), 0U);
    return;
  }
  FAIL() << "no q_proj";
}

}  // namespace
}  // namespace ferry::static_attention_test
