// convert --to: files for other tools, and their conversion back.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <memory>

#include "checkpoint/checkpoint.h"
#include "tests/cli/ferry_process.h"
#include "tests/cli/schema_check.h"

namespace ferry::export_test {
namespace {

struct Stored {
  DType dtype = DType::kF32;
  Shape shape = {};
  std::string bytes = {};
  bool operator==(const Stored&) const = default;
};

// Returns every tensor of a checkpoint or of a tensor file.
std::map<std::string, Stored> tensors_in(const std::string& path) {
  std::map<std::string, Stored> tensors;
  const auto source = checkpoint::open_tensors(path);
  EXPECT_TRUE(source.has_value()) << path;
  if (!source) return tensors;
  for (size_t i = 0; i < (*source)->entries().size(); ++i) {
    const TensorEntry& entry = (*source)->entries()[i];
    std::string bytes(entry.bytes, '\0');
    const auto read = (*source)->read(i, 0, std::as_writable_bytes(std::span(bytes)));
    EXPECT_TRUE(read.has_value()) << entry.name;
    tensors[entry.name] = {entry.dtype, entry.shape, std::move(bytes)};
  }
  return tensors;
}

std::string export_to(const TempDir& dir, const std::string& source, const std::string& format,
                      const std::string& name, std::vector<std::string> more = {}) {
  const std::string out = dir / name;
  std::vector<std::string> args = {"convert", source, "--to", format, "-o", out};
  args.insert(args.end(), more.begin(), more.end());
  const Outcome outcome = run_ferry_once(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return out;
}

std::string bundle_of(const TempDir& dir, const std::string& source,
                      std::vector<std::string> more = {}) {
  std::vector<std::string> args = {"convert", source, "-o", dir / "bundle"};
  args.insert(args.end(), more.begin(), more.end());
  const Outcome outcome = run_ferry_once(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return dir / "bundle";
}

// The checkpoints have packed and reordered rows, stacked experts, tied heads, and tensors in
// several dtypes.
class RoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(RoundTrip, ABundleGivesTheCheckpointBack) {
  const TempDir dir;
  const std::string source = fixture(GetParam());
  const auto back = tensors_in(export_to(dir, bundle_of(dir, source), "hf", "hf"));
  const auto original = tensors_in(source);
  ASSERT_EQ(back.size(), original.size());
  for (const auto& [name, tensor] : original) {
    ASSERT_TRUE(back.contains(name)) << name;
    EXPECT_TRUE(back.at(name) == tensor) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip,
                         testing::Values("golden/llama", "golden/glm", "golden/codegen",
                                         "golden/phi3_window", "golden/qwen3_moe_bf16",
                                         "golden/granite", "golden/lfm2", "llama3_tied"));

// A file has experts one by one, and other matrices in a form of its own.
class GgufRoundTrip : public testing::TestWithParam<const char*> {};

TEST_P(GgufRoundTrip, AFileGivesTheCheckpointBack) {
  const TempDir dir;
  const std::string source = fixture(GetParam());
  const std::string file = export_to(dir, source, "gguf", "m.gguf", {"--outtype", "f32"});
  const auto back = tensors_in(export_to(dir, file, "hf", "hf", {"--dtype", "f32"}));
  const auto original = tensors_in(export_to(dir, source, "hf", "f32", {"--dtype", "f32"}));
  ASSERT_EQ(back.size(), original.size());
  for (const auto& [name, tensor] : original) {
    ASSERT_TRUE(back.contains(name)) << name;
    EXPECT_TRUE(back.at(name) == tensor) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufRoundTrip,
                         testing::Values("golden/gpt_oss", "golden/dbrx", "gguf_written/llama4",
                                         "gguf_written/deepseek_v2", "gguf_written/deepseek_v3",
                                         "gguf_written/granitemoe",
                                         "gguf_written/granitemoehybrid_moe", "gguf_written/gpt2"));

// Heads with weights of their own are joined again.
TEST(ExportTest, ABundleWithHeadsApartGivesTheCheckpointBack) {
  const TempDir dir;
  const std::string source = fixture("golden/qwen3");
  const std::string bundle = bundle_of(
      dir, source, {"--program", "static", "--attention", "sha", "--context-length", "64"});
  EXPECT_TRUE(tensors_in(export_to(dir, bundle, "hf", "hf")) == tensors_in(source));
}

// Norms that a bundle stores as 1 + w come back rounded, and a note states it.
TEST(ExportTest, WhatIsComputedBackIsNearAndNoted) {
  const TempDir dir;
  const std::string source = fixture("golden/gemma3");
  const std::string bundle = bundle_of(dir, source);
  const Outcome outcome = run_ferry_once({"convert", bundle, "--to", "hf", "-o", dir / "hf"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("in the last bits of f32"), std::string::npos) << outcome.err;
  const auto back = tensors_in(dir / "hf"), original = tensors_in(source);
  for (const auto& [name, tensor] : original) {
    if (tensor.dtype != DType::kF32) continue;
    const auto* a = reinterpret_cast<const float*>(tensor.bytes.data());
    const auto* b = reinterpret_cast<const float*>(back.at(name).bytes.data());
    for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) {
      ASSERT_NEAR(a[i], b[i], 2e-7) << name;
    }
  }
}

// Serving stacks pack these projections. The library stores the parts apart.
TEST(ExportTest, ForeignPackingIsUndone) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/qwen3", [](TensorFile& file) {
    for (const char* layer : {"0", "1", "2"}) {
      const std::string mlp = std::string("model.layers.") + layer + ".mlp.";
      const std::string gate = mlp + "gate_proj.weight", up = mlp + "up_proj.weight";
      auto shape = file.header[gate]["shape"].get<std::vector<int64_t>>();
      shape[0] *= 2;
      file.append(mlp + "gate_up_proj.weight", file.header[gate]["dtype"].get<std::string>(), shape,
                  file.bytes_of(gate) + file.bytes_of(up));
      TensorFile out = file;
      out.header = nlohmann::ordered_json::object();
      out.data.clear();
      for (const auto& item : file.header.items()) {
        if (item.key() == gate || item.key() == up || item.key() == "__metadata__") continue;
        out.append(item.key(), item.value()["dtype"].get<std::string>(),
                   item.value()["shape"].get<std::vector<int64_t>>(), file.bytes_of(item.key()));
      }
      file = out;
    }
  });
  const std::string out = export_to(dir, source, "hf", "hf", {"--packed-layout", "concatenated"});
  EXPECT_TRUE(tensors_in(out) == tensors_in(fixture("golden/qwen3")));
}

TEST(ExportTest, RuntimeNamesHaveTheBytesOfTheCheckpoint) {
  const TempDir dir;
  const std::string source = fixture("golden/llama");
  const auto tensors = tensors_in(export_to(dir, source, "safetensors", "weights.safetensors"));
  const auto original = tensors_in(source);
  EXPECT_TRUE(tensors.at("layers.1.attention.wq.weight") ==
              original.at("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_TRUE(tensors.at("tok_embeddings.weight") == original.at("model.embed_tokens.weight"));
  EXPECT_EQ(tensors.size(), original.size());
}

TEST(ExportTest, ShardsHaveAnIndexAndTheSameTensors) {
  const TempDir dir;
  const std::string source = fixture("golden/phi3_window");
  const auto whole = tensors_in(export_to(dir, source, "hf", "one"));
  const std::string out = export_to(dir, source, "hf", "many", {"--max-file-size", "40K"});
  EXPECT_TRUE(tensors_in(out) == whole);
  EXPECT_TRUE(files_in(out).contains("model-00001-of-00003.safetensors"));
  for (const auto& [name, bytes] : files_in(out)) {
    EXPECT_TRUE(!name.ends_with(".safetensors") || bytes.size() <= 40'000U) << name;
  }
}

TEST(ExportTest, DtypesAreCastAndStated) {
  const TempDir dir;
  const std::string out = export_to(dir, fixture("golden/qwen3"), "hf", "hf", {"--dtype", "bf16"});
  for (const auto& [name, tensor] : tensors_in(out)) EXPECT_EQ(tensor.dtype, DType::kBF16) << name;
}

// The reader checks the CRC of every storage.
TEST(ExportTest, StateDictsAreReadBack) {
  const TempDir dir;
  const std::string source = fixture("golden/qwen3");
  const auto written = tensors_in(export_to(dir, source, "pth", "model.pth"));
  const auto weights = tensors_in(export_to(dir, source, "safetensors", "weights.safetensors"));
  for (const auto& [name, tensor] : weights) {
    std::string renamed = name;
    for (const char* norm : {"q_norm", "k_norm"}) {
      const size_t at = name.find(norm);
      if (at != std::string::npos) renamed.insert(at + 6, "_fn");
    }
    ASSERT_TRUE(written.contains(renamed)) << renamed;
    EXPECT_EQ(written.at(renamed).bytes, tensor.bytes) << renamed;
  }
  EXPECT_EQ(written.at("output.weight").bytes, written.at("tok_embeddings.weight").bytes);
  const std::string folder = export_to(dir, source, "pth", "folder");
  EXPECT_EQ(files_in(folder).at("consolidated.00.pth"), read_bytes(dir / "model.pth"));
  const auto params = nlohmann::json::parse(files_in(folder).at("params.json"));
  EXPECT_EQ(params["use_qk_norm"], true);
}

TEST(ExportTest, ABundledProgramGivesWhatItExpects) {
  const TempDir dir;
  const std::string source = fixture("golden/qwen3");
  const std::string out =
      export_to(dir, source, "bpte", "model.bpte", {"--reference", source + "/golden.safetensors"});
  const Outcome verified = run_ferry({"verify", out, "--json"});
  EXPECT_EQ(verified.code, 0) << verified.out;
  EXPECT_EQ(verified.json()["result"]["test_cases"].size(), 2U);
  EXPECT_EQ(run_ferry({"verify", out, "--tolerance", "1e-9"}).code, 1);
  const Outcome executed = run_ferry({"execute", out, "--json"});
  EXPECT_EQ(executed.json()["result"]["executions"], 2);
  EXPECT_NE(run_ferry({"inspect", out}).out.find("2 test cases of 'forward'"), std::string::npos);
  EXPECT_EQ(run_ferry({"verify", out, "--checkpoint", source}).code, 2);
  EXPECT_EQ(run_ferry({"verify", out, "--key", "k.pem"}).code, 2);
  EXPECT_EQ(run_ferry({"verify", out, "--window", "8"}).code, 2);
}

// Multiplies floats of `width` bytes by 16 by adding four to their exponents.
std::string sixteenfold(std::string floats, size_t width) {
  for (size_t i = width - 1; i < floats.size(); i += width) {
    floats[i] = static_cast<char>(floats[i] + 2);
  }
  return floats;
}

// The absolute error of bf16 is that of the largest logits, also for logits near 0.
TEST(ExportTest, ABundledProgramOfHalvesIsHeldToTheSizeOfItsOutputs) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/llama", [](TensorFile& file) {
    file.set_bytes("lm_head.weight", sixteenfold(file.bytes_of("lm_head.weight"), 2));
  });
  TensorFile golden(source + "/golden.safetensors");
  for (const std::string logits : {"short.logits", "long.logits"}) {
    golden.set_bytes(logits, sixteenfold(golden.bytes_of(logits), 4));
  }
  golden.write(dir / "large.safetensors");
  const std::string out =
      export_to(dir, source, "bpte", "model.bpte", {"--reference", dir / "large.safetensors"});
  EXPECT_EQ(run_ferry({"verify", out}).code, 0);
  EXPECT_EQ(run_ferry({"verify", out, "--tolerance", "0.01"}).code, 1);
  // The logits of this program are a sixteenth of the expected ones.
  const std::string other = export_to(dir, fixture("golden/llama"), "bpte", "other.bpte",
                                      {"--reference", dir / "large.safetensors"});
  EXPECT_EQ(run_ferry({"verify", other}).code, 1);
}

TEST(ExportTest, DocumentsAreAsTheirSchemasSay) {
  const TempDir dir;
  const std::string source = fixture("golden/qwen3"), out = dir / "model.bpte";
  const std::string reference = source + "/golden.safetensors";
  const auto problems = [](const std::string& schema, const Outcome& outcome) {
    return schema_problems(schema, outcome.json());
  };
  const Outcome made = run_ferry_once(
      {"convert", source, "--to", "bpte", "-o", out, "--reference", reference, "--json"});
  EXPECT_EQ(problems("convert.json", made), std::vector<std::string>());
  EXPECT_EQ(made.json()["result"]["files"][0]["sha256"].get<std::string>().size(), 64U);
  EXPECT_EQ(problems("verify.json", run_ferry({"verify", out, "--json"})),
            std::vector<std::string>());
  EXPECT_EQ(problems("inspect.json", run_ferry({"inspect", out, "--json"})),
            std::vector<std::string>());
  const Outcome planned = run_ferry({"convert", source, "--to", "hf", "--dry-run", "--json"});
  EXPECT_EQ(problems("convert.json", planned), std::vector<std::string>());
}

TEST(ExportTest, RunsGiveTheSameBytes) {
  const TempDir dir;
  for (const char* format : {"safetensors", "hf", "pth"}) {
    const std::string a = export_to(dir, fixture("golden/glm"), format, std::string(format) + "1",
                                    {"--threads", "1"});
    const std::string b = export_to(dir, fixture("golden/glm"), format, std::string(format) + "2",
                                    {"--threads", "3"});
    EXPECT_TRUE(files_in(a) == files_in(b)) << format;
  }
}

TEST(ExportTest, WhatExistsIsKeptUnlessItMayBeReplaced) {
  const TempDir dir;
  const std::string source = fixture("golden/llama");
  const std::string out = export_to(dir, source, "hf", "hf");
  EXPECT_EQ(run_ferry({"convert", source, "--to", "hf", "-o", out}).code, 6);
  export_to(dir, source, "hf", "hf", {"--overwrite"});
  write_bytes(out + "/notes", "mine");
  ::mkdir((out + "/folder").c_str(), 0777);
  EXPECT_EQ(run_ferry({"convert", source, "--to", "hf", "-o", out, "--overwrite"}).code, 6);
  EXPECT_EQ(read_bytes(out + "/notes"), "mine");
  const std::string file = export_to(dir, source, "safetensors", "a.safetensors");
  const std::string bytes = read_bytes(file);
  EXPECT_EQ(run_ferry({"convert", source, "--to", "pth", "-o", file}).code, 6);
  EXPECT_EQ(read_bytes(file), bytes);
  export_to(dir, source, "safetensors", "a.safetensors", {"--overwrite", "--resume"});
  EXPECT_EQ(read_bytes(file), bytes);
  export_to(dir, source, "pth", "new/folders/a.pth");
}

TEST(ExportTest, OptionsThatAFormatHasNothingForAreRefused) {
  const TempDir dir;
  const std::string source = fixture("golden/llama");
  const auto refuses = [&](std::vector<std::string> more, const std::string& word) {
    std::vector<std::string> args = {"convert", source, "-o", dir / "out"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_ferry(args);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err;
  };
  refuses({"--to", "safetensors", "--quantize", "8da4w-g32"}, "--quantize: not with --to");
  refuses({"--to", "hf", "--program", "static"}, "--program: not with --to");
  refuses({"--to", "pth", "--context-length", "8"}, "--context-length: not with --to");
  refuses({"--to", "pth", "--max-file-size", "1M"}, "--max-file-size");
  refuses({"--to", "bpte"}, "--reference FILE is required");
}

// A program whose weights are codes and scales cannot give the weights back.
TEST(ExportTest, QuantisedBundlesAreRefused) {
  const TempDir dir;
  const std::string bundle = bundle_of(dir, fixture("golden/qwen3"), {"--quantize-embedding", "8"});
  const Outcome outcome = run_ferry({"convert", bundle, "--to", "hf", "-o", dir / "out"});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("are quantised"), std::string::npos) << outcome.err;
}

// No checkpoint is made of a damaged bundle.
TEST(ExportTest, EveryByteOfABundleIsChecked) {
  const TempDir dir;
  const std::string bundle = bundle_of(dir, fixture("golden/llama"));
  std::string bytes = read_bytes(bundle + "/decoder-00001-of-00001.ptd");
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 1);
  write_bytes(bundle + "/decoder-00001-of-00001.ptd", bytes);
  EXPECT_EQ(run_ferry({"convert", bundle, "--to", "hf", "-o", dir / "out"}).code, 3);
}

}  // namespace
}  // namespace ferry::export_test
