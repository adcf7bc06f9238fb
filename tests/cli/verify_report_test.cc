#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>

#include "core/sha256.h"
#include "tests/cli/ferry_process.h"

namespace ferry::verify_report_test {
namespace {

using Json = nlohmann::json;
using Line = std::vector<std::string>;

std::string convert(const TempDir& dir, const std::string& source, const Line& options = {},
                    const std::string& name = "b") {
  Line line = {"convert", source, "-o", dir / name};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / name;
}

// Runs verify with a report in JSON and returns the report.
Json report_of(const TempDir& dir, const std::string& bundle, const Line& options, int code) {
  Line line = {"verify", bundle, "--report", dir / "r.json"};
  line.insert(line.end(), options.begin(), options.end());
  const Outcome outcome = run_ferry(line);
  EXPECT_EQ(outcome.code, code) << outcome.err;
  return Json::parse(read_bytes(dir / "r.json"));
}

const Json& named(const Json& list, const char* member, const std::string& name) {
  for (const Json& entry : list) {
    if (entry[member] == name) return entry;
  }
  ADD_FAILURE() << "no " << name;
  return list[0];
}

float value_at(const TensorFile& file, const std::string& tensor, size_t index) {
  float value = 0;
  const std::string bytes = file.bytes_of(tensor);
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

std::string hex_of_file(const std::string& path) {
  const std::string bytes = read_bytes(path);
  return to_hex(sha256(std::as_bytes(std::span(bytes))));
}

// Expects all fields that the page and scripts rely on, whatever was compared.
void expect_shape(const Json& report) {
  for (const char* member :
       {"ferry_parity_report", "ferry", "parity", "verdict", "reasons", "proves", "does_not_prove",
        "bundle", "reference", "checkpoint", "against", "options", "weights", "programs",
        "encodings", "quantization", "pixels", "comparisons", "perplexity"}) {
    EXPECT_TRUE(report.contains(member)) << member;
  }
  for (const Json& comparison : report["comparisons"]) {
    if (comparison.contains("absent")) continue;
    for (const char* member :
         {"id", "title", "parity", "metrics", "bounds", "layers", "worst", "prompts"}) {
      EXPECT_TRUE(comparison.contains(member)) << comparison["id"] << member;
    }
    EXPECT_EQ(comparison["first_divergence"].is_null(), comparison["parity"] == true);
    for (const Json& prompt : comparison["prompts"]) {
      const size_t columns = prompt["columns"]["count"];
      EXPECT_LE(columns, 128u);
      EXPECT_FALSE(prompt["heat_map"].empty());
      for (const Json& row : prompt["heat_map"]) EXPECT_EQ(row["log10_error"].size(), columns);
      for (const char* line : {"kl", "max_abs", "top1"}) {
        EXPECT_EQ(prompt["by_position"][line].size(), columns);
      }
    }
  }
}

TEST(VerifyReport, SaysWhereAWrongBundleDiverges) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    const std::string key = "model.layers.1.self_attn.k_proj.weight";
    const std::string value = "model.layers.1.self_attn.v_proj.weight";
    const std::string bytes = file.bytes_of(key);
    file.set_bytes(key, file.bytes_of(value));
    file.set_bytes(value, bytes);
  });
  const std::string golden = fixture("llama3_tied/golden.safetensors");
  const Json report = report_of(dir, convert(dir, source), {"--reference", golden}, 1);
  expect_shape(report);
  EXPECT_EQ(report["parity"], false);
  EXPECT_NE(report["verdict"].get<std::string>().find("layer 1 (cache.1.key)"), std::string::npos);
  EXPECT_EQ(report["reference"]["sha256"], hex_of_file(golden));
  const Json& outputs = named(report["comparisons"], "id", "outputs");
  EXPECT_EQ(outputs["first_divergence"]["tensor"], "cache.1.key");
  const Json& layer = named(outputs["layers"], "name", "cache.1.key");
  EXPECT_EQ(layer["within"], false);
  EXPECT_GT(layer["max_abs"], layer["limit"]);
  // The reference has the expected value at the place that the report states.
  const Json& worst = layer["worst"];
  const TensorFile reference(golden);
  const std::string tensor = worst["prompt"].get<std::string>() + ".cache.1.key";
  const auto shape = reference.header[tensor]["shape"].get<std::vector<size_t>>();
  const size_t channel = worst["channel"], position = worst["position"];
  const size_t head = channel / shape[3];
  const size_t index = (head * shape[2] + position) * shape[3] + channel % shape[3];
  EXPECT_EQ(worst["expected"].get<float>(), value_at(reference, tensor, index));
  EXPECT_NEAR(std::abs(worst["ours"].get<double>() - worst["expected"].get<double>()),
              layer["max_abs"].get<double>(), 1e-6);
}

// The report must lead to the one wrong value of the reference.
TEST(VerifyReport, LeadsToTheOneValueThatDiffers) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"));
  TensorFile golden(fixture("llama3_tied/golden.safetensors"));
  std::string prompt;
  for (const auto& [name, entry] : golden.header.items()) {
    if (name.ends_with(".logits")) prompt = name.substr(0, name.rfind('.'));
  }
  const auto shape = golden.header[prompt + ".logits"]["shape"].get<std::vector<size_t>>();
  const size_t position = 7, token = 3, index = position * shape[2] + token;
  std::string logits = golden.bytes_of(prompt + ".logits");
  const float wrong = value_at(golden, prompt + ".logits", index) + 4;
  std::memcpy(&logits[index * sizeof wrong], &wrong, sizeof wrong);
  golden.set_bytes(prompt + ".logits", logits);
  golden.write(dir / "wrong.safetensors");
  const Json report = report_of(dir, bundle, {"--reference", dir / "wrong.safetensors"}, 1);
  const Json& outputs = report["comparisons"][0];
  EXPECT_EQ(outputs["first_divergence"]["tensor"], "logits");
  EXPECT_EQ(outputs["worst"]["position"], position);
  EXPECT_EQ(outputs["worst"]["channel"], token);
  EXPECT_EQ(outputs["worst"]["expected"].get<float>(), wrong);
  const Json& one = named(outputs["prompts"], "name", prompt);
  const Json& table = one["tables"][0];
  EXPECT_EQ(table["why"], "worst");
  EXPECT_EQ(table["position"], position);
  EXPECT_EQ(named(one["heat_map"], "name", "logits")["log10_error"].size(), shape[1]);
  size_t beyond = 0;
  for (const Json& cell : named(one["heat_map"], "name", "logits")["log10_error"]) {
    beyond += cell.get<double>() > -3 ? 1 : 0;
  }
  EXPECT_EQ(beyond, 1u);
  uint64_t large = 0;
  for (const Json& bin : one["histogram"]["decades"]) {
    if (bin["from"] > 1) large += bin["count"].get<uint64_t>();
  }
  EXPECT_EQ(large, 1u);
}

TEST(VerifyReport, NothingElseIsChangedByIt) {
  const TempDir dir;
  const std::string bundle =
      convert(dir, fixture("llama3_tied"),
              {"--reference", fixture("llama3_tied/golden.safetensors"), "--dtype", "bf16"});
  const Outcome without = run_ferry({"verify", bundle, "--json"});
  const Outcome with = run_ferry({"verify", bundle, "--json", "--report", dir / "r.json"});
  EXPECT_EQ(with.code, 0) << with.err;
  EXPECT_EQ(with.out, without.out);
  const Json report = Json::parse(read_bytes(dir / "r.json"));
  expect_shape(report);
  EXPECT_EQ(report["parity"], true);
  EXPECT_EQ(report["reference"]["embedded"], true);
  const Line ids = {"in_f32", "rounding", "outputs"};
  ASSERT_EQ(report["comparisons"].size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(report["comparisons"][i]["id"], ids[i]);
  EXPECT_EQ(report["comparisons"][0]["bounds"]["source"], "measured");
}

TEST(VerifyReport, HasTheSourceFilesOfTheCheckpoint) {
  const TempDir dir;
  for (const char* name : {"llama3_tied", "qwen3_5_text", "golden/qwen3_moe"}) {
    SCOPED_TRACE(name);
    const std::string bundle = convert(dir, fixture(name), {"--overwrite"});
    const Json report = report_of(dir, bundle, {"--checkpoint", fixture(name)}, 0);
    expect_shape(report);
    // The files are those of a second pass over the checkpoint, not those of the manifest.
    const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
    EXPECT_EQ(report["checkpoint"]["files"], manifest["source"]["files"]);
    EXPECT_EQ(report["checkpoint"]["same_as_manifest"], true);
    EXPECT_EQ(report["weights"]["compared"], report["weights"]["equal"]);
    EXPECT_EQ(report["bundle"]["manifest_sha256"], manifest["manifest_sha256"]);
  }
}

TEST(VerifyReport, QuantisedAndStaticBundlesAndOtherBundles) {
  const TempDir dir;
  const std::string source = fixture("llama3_tied");
  const std::string coded = convert(dir, source, {"--quantize", "8da4w-g32"}, "coded");
  const Json quantised = report_of(dir, coded, {"--checkpoint", source}, 0);
  expect_shape(quantised);
  EXPECT_EQ(quantised["comparisons"][0]["id"], "own_weights.in_f32");
  EXPECT_FALSE(quantised["quantization"]["weights"].empty());
  EXPECT_EQ(quantised["comparisons"][2]["prompts"][0]["histogram"]["units"], nullptr);
  const std::string fixed = convert(dir, source, {"--program", "static"}, "fixed");
  const Json against = report_of(dir, fixed, {"--against", convert(dir, source)}, 0);
  expect_shape(against);
  EXPECT_EQ(against["against"]["name"], "b");
  EXPECT_EQ(against["comparisons"][1]["id"], "mode.hybrid");
}

TEST(VerifyReport, APerplexityIsASection) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"));
  write_bytes(dir / "ids.txt", "1,2,3,4,5,6,7,8\n");
  const Json report = report_of(dir, bundle, {"--perplexity", dir / "ids.txt"}, 0);
  expect_shape(report);
  EXPECT_EQ(report["parity"], nullptr);
  EXPECT_EQ(report["perplexity"]["predicted"], 7);
}

TEST(VerifyReport, ReplacesReportsAndNothingElse) {
  const TempDir dir;
  const std::string bundle = convert(dir, fixture("llama3_tied"));
  const Line base = {"verify", bundle, "--reference", fixture("llama3_tied/golden.safetensors"),
                     "--report"};
  const auto verify = [&](const std::string& file) {
    Line line = base;
    line.push_back(file);
    return run_ferry(line);
  };
  for (const char* name : {"r.json", "r.md", "r.html"}) {
    EXPECT_EQ(verify(dir / name).code, 0) << name;
    const std::string first = read_bytes(dir / name);
    EXPECT_NE(first.find("ferry_parity_report"), std::string::npos);
    EXPECT_EQ(verify(dir / name).code, 0) << name;
    EXPECT_EQ(read_bytes(dir / name), first);
    write_bytes(dir / name, "mine");
    EXPECT_EQ(verify(dir / name).code, 6) << name;
    EXPECT_EQ(read_bytes(dir / name), "mine");
  }
  EXPECT_EQ(verify(dir / "r.pdf").code, 2);
  EXPECT_EQ(verify(dir / ".html").code, 2);
  EXPECT_EQ(verify(bundle + "/r.json").code, 2);
  EXPECT_EQ(verify(dir / "nowhere/r.json").code, 5);
  std::filesystem::create_symlink("elsewhere.json", dir / "link.json");
  EXPECT_EQ(verify(dir / "link.json").code, 6);
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
}

// Texts from a reference must become neither markup nor mentions.
TEST(VerifyReport, MarkdownHasNamesInCodeSpans) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile& file) {
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    file.set_bytes(name, std::string(file.bytes_of(name).size(), '\0'));
  });
  const std::string bundle = convert(dir, source, {}, "a|<b>`c`");
  const Outcome outcome =
      run_ferry({"verify", bundle, "--reference", fixture("llama3_tied/golden.safetensors"),
                 "--report", dir / "r.md"});
  EXPECT_EQ(outcome.code, 1);
  const std::string text = read_bytes(dir / "r.md");
  EXPECT_NE(text.find("## No parity: `a\\|<b>'c'`"), std::string::npos) << text;
  EXPECT_NE(text.find("| `hidden_states.1` | 0 |"), std::string::npos) << text;
}

}  // namespace
}  // namespace ferry::verify_report_test
