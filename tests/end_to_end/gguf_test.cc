// GGUF checkpoints end to end: files of llama.cpp, compared with logits that transformers computed
// from their dequantised weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "tests/cli/ferry_process.h"

namespace ferry::gguf_test {
namespace {

using Json = nlohmann::json;

std::string gguf(const std::string& name) { return fixture("gguf/" + name + ".gguf"); }
std::string golden(const std::string& name) {
  return fixture("gguf/" + name + ".golden.safetensors");
}

// The files have paired heads, q8_0 blocks, a scaled RoPE that is stored as factors alone, and
// tiled V heads.
TEST(GgufConversion, IsAtParityWholeAndSharded) {
  for (const char* name : {"llama3_tied_q8_0", "llama3_tied_f16", "qwen3_5_gva_run_f32"}) {
    for (const char* shards : {"1", "2"}) {
      SCOPED_TRACE(std::string(name) + " in " + shards);
      const TempDir dir;
      const Outcome converted =
          run_ferry({"convert", gguf(name), "-o", dir / "b", "--dtype", "f32", "--shards", shards});
      ASSERT_EQ(converted.code, 0) << converted.err;
      const Outcome verified =
          run_ferry({"verify", dir / "b", "--reference", golden(name), "--json"});
      EXPECT_EQ(verified.code, 0) << verified.err;
      EXPECT_LT(verified.json()["metrics"]["max_abs"], 2e-4);
      EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
    }
  }
}

// Each of these architectures has features of its own: multipliers and biases (granite), norms
// after the blocks (olmo2), packed projections and two sets of RoPE factors over a part of each
// head (phi3), layers without RoPE (smollm3), softcaps, shifted norms and a window (gemma2).
TEST(GgufConversion, OfEveryArchitectureIsAtParity) {
  const std::pair<std::string, std::string> kCases[] = {
      {"granite", fixture("golden/granite/golden.safetensors")},
      {"olmo2", fixture("golden/olmo2/golden.safetensors")},
      {"phi4_mini", fixture("golden/phi4_mini/golden.safetensors")},
      {"smollm3", golden("smollm3")},
      {"gemma2", golden("gemma2")}};
  for (const auto& [name, reference] : kCases) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Outcome converted = run_ferry({"convert", gguf(name), "-o", dir / "b", "--dtype", "f32"});
    ASSERT_EQ(converted.code, 0) << converted.err;
    const Outcome verified = run_ferry({"verify", dir / "b", "--reference", reference, "--json"});
    ASSERT_EQ(verified.code, 0) << verified.err;
    const Json metrics = verified.json()["metrics"];
    EXPECT_LT(metrics["max_abs"], 1e-4);
    EXPECT_EQ(metrics["greedy_match"], metrics["greedy_total"]);
    EXPECT_GE(metrics["greedy_total"], 16);
  }
}

TEST(GgufConversion, YarnIsAtParity) {
  const TempDir dir;
  const Outcome converted =
      run_ferry({"convert", gguf("llama_yarn"), "-o", dir / "b", "--dtype", "f32"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", golden("llama_yarn"), "--json"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_LT(verified.json()["metrics"]["max_abs"], 1e-4);
}

// Factors that no parameters of llama3 give are used as they are stored: the file is converted like
// a checkpoint with these factors for sequences of any length.
TEST(GgufConversion, RopeFactorsAreUsedAsTheyStand) {
  const TempDir dir;
  std::string bytes = read_bytes(gguf("llama3_tied_f16"));
  std::vector<float> factors;
  for (int i = 0; i < 16; ++i) factors.push_back(1.0F + static_cast<float>((i * 7) % 5) / 4.0F);
  // The original factors of the file rise from 1 to 32.
  const size_t size = factors.size() * sizeof(float);
  const size_t last = bytes.rfind(std::string("\0\0\0\x42\0\0\0\x42", 8));
  ASSERT_NE(last, std::string::npos);
  const size_t at = last + 8 - size;
  ASSERT_EQ(bytes.substr(at, 4), std::string("\0\0\x80\x3f", 4));
  bytes.replace(at, size, reinterpret_cast<const char*>(factors.data()), size);
  write_bytes(dir / "m.gguf", bytes);

  std::filesystem::copy(fixture("llama3_tied"), dir / "hf");
  Json config = Json::parse(read_bytes(fixture("llama3_tied/config.json")));
  config.erase("rope_scaling");
  config.erase("rope_theta");
  const Json ours = Json::parse(
      run_ferry({"convert", dir / "m.gguf", "-o", dir / "plain", "--dtype", "f16"}).code == 0
          ? read_bytes(dir / "plain/config.json")
          : "{}");
  config["rope_parameters"] = {
      {"rope_type", "longrope"}, {"rope_theta", ours["rope_parameters"]["rope_theta"]},
      {"short_factor", factors}, {"long_factor", factors},
      {"attention_factor", 1.0}, {"original_max_position_embeddings", 256}};
  std::filesystem::remove(dir / "hf/config.json");
  write_bytes(dir / "hf/config.json", config.dump());
  const Outcome converted =
      run_ferry({"convert", dir / "hf", "-o", dir / "same", "--dtype", "f16"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  for (const char* file : {"/decoder-00001-of-00001.pte", "/decoder-00001-of-00001.ptd"}) {
    EXPECT_TRUE(read_bytes(dir / "plain" + file) == read_bytes(dir / "same" + file)) << file;
  }
  // The file's original factors give another program.
  ASSERT_EQ(
      run_ferry({"convert", gguf("llama3_tied_f16"), "-o", dir / "first", "--dtype", "f16"}).code,
      0);
  EXPECT_FALSE(read_bytes(dir / "plain/decoder-00001-of-00001.pte") ==
               read_bytes(dir / "first/decoder-00001-of-00001.pte"));
}

TEST(GgufConversion, ADirectoryWithOneFileIsThatFile) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "m");
  std::filesystem::copy(gguf("llama3_tied_f16"), dir / "m/model.gguf");
  const Outcome plan = run_ferry({"convert", dir / "m", "--dry-run", "--json"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  std::filesystem::copy(gguf("llama3_tied_f16"), dir / "m/other.gguf");
  const Outcome refused = run_ferry({"convert", dir / "m", "--dry-run"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(refused.err, "ferry: error: " + (dir / "m") +
                             ": several GGUF files; give the path of one, such as 'model.gguf'\n");
}

// The file stores matrices as f16, which are the rounded matrices of its source, and norms
// unchanged. Rows of q and k are brought back from pairs.
TEST(GgufConversion, WeightsAreThoseOfTheCheckpointItWasMadeFrom) {
  const TempDir dir;
  for (const auto& [source, out] : {std::pair(gguf("llama3_tied_f16"), dir / "gguf"),
                                    std::pair(fixture("llama3_tied"), dir / "hf")}) {
    const Outcome converted = run_ferry({"convert", source, "-o", out, "--dtype", "f16"});
    ASSERT_EQ(converted.code, 0) << converted.err;
  }
  EXPECT_TRUE(read_bytes(dir / "gguf/decoder-00001-of-00001.ptd") ==
              read_bytes(dir / "hf/decoder-00001-of-00001.ptd"));
  EXPECT_TRUE(read_bytes(dir / "gguf/decoder-00001-of-00001.pte") ==
              read_bytes(dir / "hf/decoder-00001-of-00001.pte"));
}

TEST(GgufConversion, KeepsWhatIsStoredAndWidensBlocks) {
  const struct {
    const char* name;
    const char* dtype;
  } kCases[] = {{"llama3_tied_f16", "f16"}, {"llama3_tied_q8_0", "f32"}};
  for (const auto& c : kCases) {
    const TempDir dir;
    ASSERT_EQ(run_ferry({"convert", gguf(c.name), "-o", dir / "b"}).code, 0);
    const Json manifest = Json::parse(read_bytes(dir / "b/manifest.json"));
    for (const Json& tensor : manifest["tensors"]) {
      if (tensor["name"] != "layers.0.attention.wq.weight") continue;
      EXPECT_EQ(tensor["dtype"], c.dtype);
      EXPECT_EQ(tensor["sources"][0]["key"], "blk.0.attn_q.weight");
    }
  }
}

TEST(GgufConversion, EveryTensorIsInTheReportUnderItsOwnName) {
  const Json plan = run_ferry({"convert", gguf("llama3_tied_f16"), "--dry-run", "--json"}).json();
  const Json listing = run_ferry({"inspect", gguf("llama3_tied_f16"), "--json"}).json();
  std::set<std::string> stored, reported;
  for (const Json& tensor : listing["tensors"]) stored.insert(tensor["name"]);
  std::string dropped;
  for (const Json& entry : plan["entries"]) {
    if (entry["source"] != "") reported.insert(entry["source"]);
    if (entry["targets"].empty()) dropped = entry["source"];
  }
  EXPECT_EQ(reported, stored);
  EXPECT_EQ(dropped, "rope_freqs.weight");
}

TEST(GgufConversion, BringsItsOwnFiles) {
  const TempDir dir;
  const Outcome converted = run_ferry({"convert", gguf("qwen3_5_gva_run_f32"), "-o", dir / "b"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  EXPECT_EQ(converted.err, "");
  const auto document = [&](const char* name) {
    return Json::parse(read_bytes(dir / "b/" + name));
  };
  EXPECT_EQ(document("config.json")["model_type"], "qwen3_5_text");
  EXPECT_EQ(document("generation_config.json")["eos_token_id"], Json({2}));
  const Json tokenizer = document("tokenizer.json");
  EXPECT_EQ(tokenizer["model"]["type"], "BPE");
  EXPECT_EQ(tokenizer["added_tokens"].size(), 3U);
  EXPECT_EQ(document("tokenizer_config.json")["eos_token"], "<eos>");
}

// The keys general.sampling.* are numbers of 32 bits; the decimal number that was written comes
// back.
TEST(GgufConversion, SettingsOfSamplingComeAndGo) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  Json generation = Json::parse(read_bytes(source + "/generation_config.json"));
  const Json sampling = {{"do_sample", true},
                         {"temperature", 0.6},
                         {"top_k", 20},
                         {"top_p", 0.95},
                         {"repetition_penalty", 1.05}};
  generation.update(sampling);
  write_bytes(source + "/generation_config.json", generation.dump());
  const Outcome made = run_ferry({"convert", source, "--to", "gguf", "-o", dir / "m.gguf"});
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(run_ferry({"convert", dir / "m.gguf", "-o", dir / "b"}).code, 0);
  const Json read = Json::parse(read_bytes(dir / "b/generation_config.json"));
  for (const auto& [name, value] : sampling.items()) EXPECT_EQ(read[name], value) << name;
  const Json ran =
      run_ferry({"run", dir / "m.gguf", "--tokens", "1,2", "--max-new", "2", "--json"}).json();
  EXPECT_EQ(ran["result"]["sampling"]["temperature"], 0.6);
}

TEST(GgufConversion, RefusesInOneLine) {
  const TempDir dir;
  const std::string user = dir / "config.json";
  write_bytes(user, R"({"model_type": "llama", "hidden_size": 128})");
  const struct {
    std::vector<std::string> arguments;
    int code;
    std::string message;
  } kCases[] = {
      {{gguf("llama3_tied_f16"), "--config", user},
       3,
       user + ": 'hidden_size' is 128, but " + gguf("llama3_tied_f16") +
           " has 64 (llama.embedding_length)"},
      // The rows of the embedding were cut. All other tensors follow the stated size.
      {{gguf("mixA.rows"), "--config", user},
       3,
       user + ": 'hidden_size' is 128, but " + gguf("mixA.rows") +
           " has 256 (llama.embedding_length)"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> line = {"convert"};
    line.insert(line.end(), c.arguments.begin(), c.arguments.end());
    line.insert(line.end(), {"-o", dir / "b"});
    const Outcome outcome = run_ferry(line);
    EXPECT_EQ(outcome.code, c.code);
    EXPECT_EQ(outcome.err, "ferry: error: " + c.message + "\n");
    EXPECT_FALSE(std::filesystem::exists(dir / "b"));
  }
}

// These names belong to layouts with other values.
TEST(GgufConversion, ForeignNamesInOtherFormatsAreRefused) {
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } kCases[] = {
      {"model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight",
       "the names of GGUF in a file that is not GGUF"},
      {"model.layers.0.self_attn.q_proj.weight", "layers.0.attention.wq.weight",
       "the names of Meta's own checkpoints"},
  };
  for (const auto& c : kCases) {
    const TempDir dir;
    const std::string source = changed_checkpoint(
        dir, "llama3_tied", [&](TensorFile& file) { file.rename(c.from, c.to); });
    const Outcome outcome = run_ferry({"convert", source, "-o", dir / "b"});
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(outcome.error_lines(), 1U);
    EXPECT_NE(outcome.err.find(c.message), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(c.to), std::string::npos) << outcome.err;
  }
}

// The file has a vocabulary of words, of which "The cats, running" takes the tokens below.
TEST(GgufConversion, OfAnEncoderGivesVectors) {
  const std::string file = fixture("gguf/families/bert.gguf");
  const auto vector = [&](const std::string& kind, const std::string& value) {
    const Outcome made = run_ferry({"embed", file, kind, value, "--json"});
    EXPECT_EQ(made.code, 0) << made.err;
    return made.json()["result"]["texts"][0];
  };
  const Json of_text = vector("--text", "The cats, running");
  EXPECT_EQ(of_text["tokens"], 9);
  EXPECT_EQ(of_text, vector("--tokens", "2,5,7,11,13,16,17,12,3"));
}

// -- newer families

constexpr double kTolerance = 5e-5;

// transformers computed the logits from the checkpoints of which llama.cpp's converter made the
// files.
class GgufFamily : public testing::TestWithParam<std::string> {};

TEST_P(GgufFamily, IsAtParity) {
  const std::string file = fixture("gguf/families/" + GetParam());
  const TempDir dir;
  const Outcome converted =
      run_ferry({"convert", file + ".gguf", "-o", dir / "b", "--dtype", "f32"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Outcome verified =
      run_ferry({"verify", dir / "b", "--reference", file + ".golden.safetensors", "--json"});
  ASSERT_EQ(verified.code, 0) << verified.err;
  EXPECT_LT(verified.json()["metrics"]["max_abs"], kTolerance);
}

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("gguf/families"))) {
    if (entry.path().extension() == ".gguf") found.push_back(entry.path().stem().string());
  }
  std::ranges::sort(found);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Files, GgufFamily, testing::ValuesIn(names()),
                         [](const auto& file) { return file.param; });

}  // namespace
}  // namespace ferry::gguf_test
