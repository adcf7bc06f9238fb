// Adapters that stay apart from the weights, end to end. The references are what peft's merged
// models compute (testdata/adapters).

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "formats/ptd/ptd.h"
#include "tests/cli/ferry_process.h"

namespace ferry::adapters_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string adapter(const std::string& name) { return fixture("adapters/" + name); }
std::string golden(const std::string& name) {
  return fixture("adapters/" + name + ".golden.safetensors");
}
std::string all_adapters() {
  return "formal=" + adapter("formal") + ",short=" + adapter("short") +
         ",table=" + adapter("table");
}

class Adapters : public testing::Test {
 protected:
  std::string base_ = fixture("golden/llama");
  TempDir dir_;

  std::string convert(const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"convert", base_, "-o", dir_ / name});
    const Outcome made = run_ferry(more);
    EXPECT_EQ(made.code, 0) << made.err;
    return dir_ / name;
  }

  // Returns the bytes of the logits that tokens are chosen from.
  std::string logits(const std::string& bundle, const std::string& name,
                     const std::string& adapter = "") {
    std::vector<std::string> line = {"run",       bundle, "--tokens",      "1,17,4,33,9,52",
                                     "--max-new", "12",   "--dump-logits", dir_ / name};
    if (!adapter.empty()) line.insert(line.end(), {"--adapter", adapter});
    const Outcome ran = run_ferry_once(line);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return TensorFile(dir_ / name).bytes_of("logits");
  }
};

TEST_F(Adapters, GiveWhatThePeftMergedModelGives) {
  const std::string bundle = convert("b", {"--adapters", all_adapters(), "--dtype", "f32"});
  for (const std::string name : {"formal", "short", "table"}) {
    const Outcome verified =
        run_ferry({"verify", bundle, "--adapter", name, "--reference", golden(name)});
    EXPECT_EQ(verified.code, 0) << name << ": " << verified.err << verified.out;
    const Outcome proved = run_ferry(
        {"verify", bundle, "--adapter", name, "--checkpoint", base_, "--reference", golden(name)});
    EXPECT_EQ(proved.code, 0) << name << ": " << proved.err << proved.out;
  }
  // The reference of one adapter refutes the others, and the base.
  for (const std::string name : {"short", "table", ""}) {
    std::vector<std::string> line = {"verify", bundle, "--reference", golden("formal")};
    if (!name.empty()) line.insert(line.end(), {"--adapter", name});
    EXPECT_EQ(run_ferry(line).code, 1) << name;
  }
}

TEST_F(Adapters, InEightBitsAreWithinTheirRounding) {
  const std::string plain = convert("plain", {"--dtype", "f32"});
  const std::string bundle =
      convert("b", {"--adapters", all_adapters(), "--dtype", "f32", "--adapter-dtype", "int8"});
  EXPECT_EQ(logits(bundle, "x", ""), logits(plain, "y", ""));
  for (const std::string name : {"formal", "short", "table"}) {
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, {"--checkpoint", base_}}) {
      std::vector<std::string> line = {"verify", bundle,        "--adapter",
                                       name,     "--reference", golden(name)};
      line.insert(line.end(), more.begin(), more.end());
      EXPECT_EQ(run_ferry(line).code, 0) << name;
      line.back() = more.empty() ? golden(name == "table" ? "formal" : "table") : base_;
      line[5] = golden(name == "table" ? "formal" : "table");
      EXPECT_NE(run_ferry_once(line).code, 0) << name << " with another reference";
    }
  }
  EXPECT_EQ(run_ferry({"convert", base_, "-o", dir_ / "n", "--adapter-dtype", "int8"}).code, 2);
}

TEST_F(Adapters, NoneIsTheBaseToTheBit) {
  const std::string with = convert("with", {"--adapters", all_adapters()});
  const std::string without = convert("without", {});
  EXPECT_EQ(logits(with, "a"), logits(without, "b"));
  EXPECT_NE(logits(with, "c", "formal"), logits(without, "d"));
  const Outcome verified = run_ferry(
      {"verify", with, "--checkpoint", base_, "--reference", base_ + "/golden.safetensors"});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
  EXPECT_EQ(read_bytes(with + "/decoder-00001-of-00001.ptd"),
            read_bytes(without + "/decoder-00001-of-00001.ptd"));
}

TEST_F(Adapters, WorkInEveryFormOfTheBase) {
  const std::vector<std::vector<std::string>> forms = {
      {"--dtype", "bf16"},
      {"--quantize", "8da8w"},
      {"--quantize", "8da4w-g32", "--quantize-embedding", "8"},
      {"--quantize", "int8"},
      {"--shards", "2"},
      {"--program", "static", "--context-length", "64"}};
  for (size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(forms[i][1]);
    std::vector<std::string> line = forms[i];
    const std::string without = convert("plain" + std::to_string(i), line);
    line.insert(line.end(), {"--adapters", all_adapters()});
    const std::string with = convert("adapted" + std::to_string(i), line);
    EXPECT_EQ(logits(with, "a" + std::to_string(i)), logits(without, "b" + std::to_string(i)));
    for (const std::string name : {"formal", "short", "table"}) {
      const Outcome proved = run_ferry(
          {"verify", with, "--adapter", name, "--checkpoint", base_, "--reference", golden(name)});
      EXPECT_EQ(proved.code, 0) << name << ": " << proved.err << proved.out;
    }
  }
}

TEST_F(Adapters, AreDataFilesWithTheNamesOfTheOfficialLoraLinear) {
  const std::string bundle = convert("b", {"--adapters", all_adapters()});
  const Json manifest = Json::parse(read_bytes(bundle + "/manifest.json"));
  EXPECT_EQ(manifest["version"], 8);
  EXPECT_EQ(manifest["no_adapter"], "no-adapter.ptd");
  std::set<std::string> sources;
  for (const Json& file : manifest["source"]["files"]) sources.insert(file["path"]);
  EXPECT_EQ(sources, (std::set<std::string>{"model.safetensors"}));
  ASSERT_EQ(manifest["adapters"].size(), 3U);
  EXPECT_EQ(manifest["adapters"][1]["name"], "short");
  EXPECT_EQ(manifest["adapters"][1]["file"], "adapter-short.ptd");
  EXPECT_EQ(manifest["adapters"][1]["files"][0]["path"], "adapter_model.safetensors");
  const std::string bytes = read_bytes(bundle + "/adapter-short.ptd");
  const auto data = ptd::read_data_file(std::as_bytes(std::span(bytes)), "adapter-short.ptd");
  ASSERT_TRUE(data) << data.error().message;
  std::map<std::string, std::vector<int32_t>> shapes;
  for (const ptd::NamedTensor& tensor : data->tensors) shapes[tensor.key] = tensor.sizes;
  // Ranks are those of the largest adapter: 8 for q_proj of layer 0, 4 for that of layer 1.
  EXPECT_EQ(shapes["layers.0.attention.wq.lora_a.weight"], (std::vector<int32_t>{8, 32}));
  EXPECT_EQ(shapes["layers.0.attention.wq.lora_b.weight"], (std::vector<int32_t>{32, 8}));
  EXPECT_EQ(shapes["layers.0.attention.wq.lora_scale"], (std::vector<int32_t>{1}));
  EXPECT_EQ(shapes["layers.1.attention.wq.lora_a.weight"], (std::vector<int32_t>{4, 32}));
  EXPECT_EQ(shapes["layers.2.feed_forward.w2.lora_a.weight"], (std::vector<int32_t>{3, 40}));
  EXPECT_EQ(shapes["tok_embeddings.lora_embedding_a.weight"], (std::vector<int32_t>{64, 3}));
  EXPECT_EQ(shapes["output.lora_b.weight"], (std::vector<int32_t>{64, 3}));
  EXPECT_EQ(shapes.count("layers.1.feed_forward.w2.lora_a.weight"), 0U);
  const Json audit = run_ferry({"audit", bundle, "--json"}).json();
  EXPECT_EQ(audit["exit"], 0);
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
  EXPECT_EQ(run_ferry({"inspect", bundle}).code, 0);
}

TEST_F(Adapters, OfHalfPrecisionStayHalfAndAreComputedInF32) {
  const std::string bundle = convert("b", {"--adapters", "short=" + adapter("short")});
  const Json listed = run_ferry({"adapter", "list", bundle, "--json"}).json()["result"];
  EXPECT_EQ(listed["dtype"], "bf16");
  const Outcome proved = run_ferry({"verify", bundle, "--adapter", "short", "--checkpoint", base_,
                                    "--reference", golden("short")});
  EXPECT_EQ(proved.code, 0) << proved.err << proved.out;
}

TEST_F(Adapters, EqualTheBundleOfTheMergedModel) {
  const std::string bundle =
      convert("b", {"--adapters", "formal=" + adapter("formal"), "--dtype", "f32"});
  const std::string merged = convert("merged", {"--lora", adapter("formal"), "--dtype", "f32"});
  const Outcome verified =
      run_ferry({"verify", bundle, "--adapter", "formal", "--against", merged});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

// DoRA, of layers with and without a bias, and of an embedding.
TEST_F(Adapters, WithMagnitudesGiveWhatPeftGives) {
  base_ = fixture("golden/llama_bias_mqa");
  const std::string given = "dora=" + adapter("magnitudes"), wanted = golden("magnitudes");
  const std::string plain = convert("plain", {"--dtype", "f32"});
  const std::string bundle = convert("b", {"--adapters", given, "--dtype", "f32"});
  EXPECT_EQ(logits(bundle, "with"), logits(plain, "without"));
  const Outcome proved = run_ferry(
      {"verify", bundle, "--adapter", "dora", "--checkpoint", base_, "--reference", wanted});
  EXPECT_EQ(proved.code, 0) << proved.err << proved.out;
  EXPECT_EQ(run_ferry({"verify", bundle, "--reference", wanted}).code, 1);
  const std::string merged = convert("merged", {"--lora", adapter("magnitudes"), "--dtype", "f32"});
  const Outcome verified = run_ferry({"verify", merged, "--reference", wanted});
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
  // Values of the base are not at hand for an adapter that comes later.
  const Outcome added =
      run_ferry({"adapter", "add", bundle, adapter("magnitudes"), "--name", "more"});
  EXPECT_EQ(added.code, 4);
  EXPECT_NE(added.err.find("lora_magnitude_vector' [48]: its effect depends on the weights"),
            std::string::npos)
      << added.err;
}

TEST_F(Adapters, ChangeBetweenThePromptsOfABatch) {
  const std::string bundle = convert("b", {"--adapters", all_adapters()});
  write_bytes(dir_ / "prompts",
              "{\"tokens\": [1, 17, 4], \"adapter\": \"formal\"}\n{\"tokens\": [1, 17, 4]}\n"
              "{\"tokens\": [1, 17, 4], \"adapter\": \"short\"}\n"
              "{\"adapter\": \"\", \"tokens\": [1, 17, 4]}\n");
  const auto tokens_of = [&](const std::string& name) {
    std::vector<std::string> line = {"run",       bundle, "--tokens", "1,17,4",
                                     "--max-new", "8",    "--json"};
    if (!name.empty()) line.insert(line.end(), {"--adapter", name});
    return run_ferry(line).json()["result"]["tokens"];
  };
  const Json answers = run_ferry({"run", bundle, "--prompts", dir_ / "prompts", "--adapter",
                                  "table", "--max-new", "8", "--json"})
                           .json()["result"]["answers"];
  ASSERT_EQ(answers.size(), 4U);
  const char* const names[] = {"formal", "table", "short", ""};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i]["tokens"], tokens_of(names[i])) << i;
    EXPECT_EQ(answers[i].value("adapter", ""), names[i]);
  }
  const Outcome together = run_ferry(
      {"run", bundle, "--prompts", dir_ / "prompts", "--adapter", "formal", "--parallel", "2"});
  EXPECT_EQ(together.code, 2);
  EXPECT_NE(together.err.find("line 3: --parallel takes one adapter"), std::string::npos)
      << together.err;
  write_bytes(dir_ / "same",
              "{\"tokens\": [1, 17, 4]}\n{\"tokens\": [1, 17, 4], \"adapter\": \"table\"}\n");
  const Json both = run_ferry({"run", bundle, "--prompts", dir_ / "same", "--adapter", "table",
                               "--parallel", "2", "--max-new", "8", "--json"})
                        .json()["result"]["answers"];
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1]["tokens"], tokens_of("table"));
  EXPECT_EQ(both[0]["tokens"], tokens_of("table"));
  write_bytes(dir_ / "bad", "{\"tokens\": [1], \"adapter\": \"nobody\"}\n");
  const Outcome refused = run_ferry({"run", bundle, "--prompts", dir_ / "bad"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("line 1"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("there are formal, short, table"), std::string::npos) << refused.err;
}

TEST_F(Adapters, AreUpToDateUntilTheirFilesChange) {
  const std::string copy = dir_ / "adapter";
  fs::create_directory(copy);
  for (const auto& [file, bytes] : files_in(adapter("formal")))
    write_bytes(copy + "/" + file, bytes);
  const std::vector<std::string> line = {"convert",      base_,        "-o",          dir_ / "b",
                                         "--if-changed", "--adapters", "one=" + copy, "--json"};
  EXPECT_EQ(run_ferry_once(line).json()["result"]["up_to_date"], false);
  EXPECT_EQ(run_ferry_once(line).json()["result"]["up_to_date"], true);
  TensorFile tensors(copy + "/adapter_model.safetensors");
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight";
  std::string bytes = tensors.bytes_of(name);
  bytes[0] = static_cast<char>(bytes[0] ^ 1);
  tensors.set_bytes(name, bytes);
  tensors.write(copy + "/adapter_model.safetensors");
  EXPECT_EQ(run_ferry_once(line).json()["result"]["up_to_date"], false);
}

TEST_F(Adapters, AreRefusedByTheNameOfWhatNoFactorHolds) {
  struct Case {
    std::string line;  // the value of --adapters
    int code;
    std::string message;
  };
  const Case cases[] = {{"a", 2, "expected NAME=DIR"},
                        {"a=", 2, "expected NAME=DIR"},
                        {"a/b=" + adapter("formal"), 2, "is no name"},
                        {".a=" + adapter("formal"), 2, "is no name"},
                        {"a=" + adapter("formal") + ",a=" + adapter("short"), 2, "is given twice"},
                        // A head of its own, which would be the head of all adapters.
                        {"a=" + fixture("lora"), 4, "replaces weights of the base"},
                        {"a=" + dir_ / "nothing", 5, "nothing"}};
  for (const Case& one : cases) {
    const Outcome refused = run_ferry({"convert", base_, "-o", dir_ / "b", "--adapters", one.line});
    EXPECT_EQ(refused.code, one.code) << one.line << refused.err;
    EXPECT_NE(refused.err.find(one.message), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(dir_ / "b"));
  }
  const Outcome split = run_ferry({"convert", base_, "-o", dir_ / "b", "--program", "static",
                                   "--attention", "sha", "--adapters", "a=" + adapter("formal")});
  EXPECT_EQ(split.code, 2) << split.err;
  const Outcome exported = run_ferry(
      {"convert", base_, "--to", "hf", "-o", dir_ / "b", "--adapters", "a=" + adapter("formal")});
  EXPECT_EQ(exported.code, 2) << exported.err;
}

// A damaged data file of an adapter is found, and so is one with other tensors.
TEST_F(Adapters, AreCheckedLikeAllFiles) {
  const std::string bundle = convert("b", {"--adapters", all_adapters()});
  const std::string file = bundle + "/adapter-formal.ptd", whole = read_bytes(file);
  std::string damaged = whole;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_bytes(file, damaged);
  EXPECT_EQ(run_ferry({"check", bundle}).code, 1);
  EXPECT_EQ(run_ferry({"run", bundle, "--tokens", "1"}).code, 3);
  write_bytes(file, whole);
  EXPECT_EQ(run_ferry({"check", bundle}).code, 0);
  const Outcome unknown = run_ferry({"run", bundle, "--adapter", "formel", "--tokens", "1"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("there are formal, short, table"), std::string::npos) << unknown.err;
}

TEST_F(Adapters, AreLeftOutOfFilesForOtherTools) {
  const std::string bundle = convert("b", {"--adapters", all_adapters()});
  const std::string plain = convert("plain", {});
  for (const std::string& from : {bundle, plain}) {
    const Outcome made = run_ferry({"convert", from, "--to", "hf", "-o", from + ".hf"});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  EXPECT_EQ(read_bytes(bundle + ".hf/model.safetensors"),
            read_bytes(plain + ".hf/model.safetensors"));
}

}  // namespace
}  // namespace ferry::adapters_test
