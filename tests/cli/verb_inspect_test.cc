#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>

#include "tests/cli/ferry_process.h"

namespace ferry::verb_inspect_test {
namespace {

using Json = nlohmann::json;

Json inspect(const std::string& path) {
  const Outcome outcome = run_ferry({"inspect", path, "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.json();
}

TEST(Inspect, ListsWhatTheHeaderOfTheFileSays) {
  const TensorFile file(fixture("llama3_tied/model.safetensors"));
  const Json listing = inspect(fixture("llama3_tied"));
  EXPECT_EQ(listing["kind"], "checkpoint");
  std::map<std::string, Json> by_name;
  for (const Json& tensor : listing["tensors"]) by_name[tensor["name"]] = tensor;
  size_t expected = 0;
  for (const auto& [name, entry] : file.header.items()) {
    if (name == "__metadata__") continue;
    ++expected;
    ASSERT_TRUE(by_name.contains(name)) << name;
    EXPECT_EQ(by_name[name]["shape"], Json(entry["shape"]));
    EXPECT_EQ(by_name[name]["dtype"], "f32");
    const auto bytes =
        entry["data_offsets"][1].get<int64_t>() - entry["data_offsets"][0].get<int64_t>();
    EXPECT_EQ(by_name[name]["bytes"], bytes);
  }
  EXPECT_EQ(by_name.size(), expected);
  EXPECT_EQ(listing["tensor_bytes"], file.data.size());
}

TEST(Inspect, ShowsAnOfficialProgram) {
  const Json listing = inspect(fixture("official_pte/llama_tiny_ext.pte"));
  EXPECT_EQ(listing["kind"], "program");
  const Json& program = listing["programs"][0];
  EXPECT_EQ(program["external"].size(), 29U);
  const Json& forward = program["methods"][0];
  EXPECT_EQ(forward["name"], "forward");
  EXPECT_EQ(forward["inputs"][0]["type"], "i64");
  EXPECT_EQ(forward["inputs"][0]["shape"], Json({1, 31}));
  EXPECT_EQ(forward["operators"]["aten::linear.out"], 15);
  EXPECT_EQ(forward["planned_bytes"][0], 106432);
}

TEST(Inspect, FindsTheStateOfOfficialPrograms) {
  const Json zeros = inspect(fixture("official_pte/state_noinit.pte"));
  const Json& buffers = zeros["programs"][0]["methods"][0]["buffers"];
  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers[0]["shape"], Json({3, 4}));
  EXPECT_EQ(buffers[1]["dtype"], "i64");
  EXPECT_EQ(buffers[1]["init"], "none");
  const Json stored = inspect(fixture("official_pte/state_init.pte"));
  EXPECT_EQ(stored["programs"][0]["methods"][0]["buffers"][0]["init"], "stored");
  // The model has two layers, with keys and values each.
  const Json llama = inspect(fixture("official_pte/llama_tiny_ext.pte"));
  EXPECT_EQ(llama["programs"][0]["methods"][0]["buffers"].size(), 4U);
}

TEST(Inspect, ShowsAnOfficialDataFile) {
  const Json listing = inspect(fixture("official_pte/llama_tiny_ext.ptd"));
  EXPECT_EQ(listing["kind"], "data");
  EXPECT_EQ(listing["tensors"].size(), 29U);
  EXPECT_EQ(listing["tensors"][0]["name"], "tok_embeddings.weight");
  EXPECT_EQ(listing["tensors"][0]["shape"], Json({128, 64}));
}

TEST(Inspect, ShowsOfficialDelegates) {
  const Json listing = inspect(fixture("xnnpack/ffn_8da4w_g32.pte"));
  const Json& program = listing["programs"][0];
  EXPECT_EQ(program["delegate_bytes"], 3056);
  EXPECT_EQ(program["named_bytes"], 10368);
  EXPECT_EQ(program["named_data"].size(), 6U);
  const Json& delegates = program["methods"][0]["delegates"];
  ASSERT_EQ(delegates.size(), 3U);
  EXPECT_EQ(delegates[0]["backend"], "XnnpackBackend");
  EXPECT_EQ(delegates[0]["bytes"], 1456);
  EXPECT_EQ(delegates[0]["nodes"], Json({{"Convert", 2}, {"FullyConnected", 2}}));
  ASSERT_EQ(delegates[0]["constants"].size(), 4U);
  const Json& weight = delegates[0]["constants"][0];
  EXPECT_EQ(weight["key"], program["named_data"][0]["name"]);
  EXPECT_EQ(weight["bytes"], 3072);
  EXPECT_EQ(weight["type"], "qbint4");
  EXPECT_EQ(weight["shape"], Json({96, 64}));
  EXPECT_EQ(weight["group_size"], 32);
  EXPECT_EQ(delegates[0]["constants"][1]["type"], "bf16");
  EXPECT_EQ(delegates[0]["constants"][1]["shape"], Json({96, 2}));
  EXPECT_EQ(delegates[1]["nodes"], Json({{"Multiply", 2}, {"Sigmoid", 1}}));
  const Outcome text = run_ferry({"inspect", fixture("xnnpack/ffn_8da4w_g32.pte")});
  EXPECT_NE(text.out.find("delegate 'XnnpackBackend', 688 B: 2 x Multiply, 1 x Sigmoid\n"),
            std::string::npos);
  EXPECT_NE(text.out.find("3072 B, qbint4 [96, 64] in groups of 32\n"), std::string::npos);
}

TEST(Inspect, ShowsDataOfDelegatesInADataFile) {
  const Json data = inspect(fixture("xnnpack/linear_8da8w_pc_ext.ptd"));
  ASSERT_EQ(data["tensors"].size(), 2U);
  EXPECT_FALSE(data["tensors"][0].contains("dtype"));
  EXPECT_EQ(data["tensors"][0]["stored"], "bytes");
  EXPECT_EQ(data["tensors"][0]["bytes"], 6144);
  const Json listing = inspect(fixture("xnnpack/linear_8da8w_pc_ext.pte"));
  const Json& program = listing["programs"][0];
  EXPECT_EQ(program["external"], data["tensors"]);
  EXPECT_TRUE(program["named_data"].empty());
}

TEST(Inspect, RefusesACallThatDoesNotFitItsBlob) {
  const Outcome outcome = run_ferry({"inspect", fixture("xnnpack/linear_wrong_count.pte")});
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("method 'forward': instruction 0 (delegate): 3 arguments, its blob "
                             "takes 2"),
            std::string::npos)
      << outcome.err;
}

// Dtype and bytes are those of the decoded values. The block types of the file are listed beside
// them. The total is the size of the file.
TEST(Inspect, ListsAGgufFileAsTheValuesThatItHolds) {
  const std::string path = fixture("gguf/mixA.rows.gguf");
  const Json listing = inspect(path);
  EXPECT_EQ(listing["kind"], "checkpoint");
  const TensorFile golden(fixture("gguf/mixA.rows.safetensors"));
  EXPECT_EQ(listing["tensors"].size(), golden.header.size());
  for (const Json& tensor : listing["tensors"]) {
    EXPECT_EQ(tensor["shape"], Json(golden.header[tensor["name"].get<std::string>()]["shape"]));
    EXPECT_EQ(tensor["dtype"], "f32");
  }
  const std::map<std::string, std::pair<std::string, int>> kStored = {
      {"blk.0.attn_q.weight", {"q4_0", 18}},  {"blk.0.attn_k.weight", {"q4_1", 20}},
      {"blk.0.attn_v.weight", {"q5_0", 22}},  {"blk.0.attn_output.weight", {"q5_1", 24}},
      {"token_embd.weight", {"q8_0", 34}},    {"blk.0.ffn_gate.weight", {"q4_k", 18}},
      {"blk.0.ffn_down.weight", {"q5_k", 22}}};
  int64_t total = 0;
  size_t found = 0;
  for (const Json& tensor : listing["tensors"]) {
    const int64_t values = tensor["bytes"].get<int64_t>() / 4;
    const int64_t bytes = tensor["stored_bytes"].get<int64_t>();
    total += bytes;
    const auto stored = kStored.find(tensor["name"].get<std::string>());
    if (stored == kStored.end()) continue;
    ++found;
    EXPECT_EQ(tensor["stored"], stored->second.first);
    EXPECT_EQ(bytes, values / 32 * stored->second.second) << stored->first;
  }
  EXPECT_EQ(found, kStored.size());
  EXPECT_EQ(listing["tensor_bytes"], total);
  EXPECT_LT(total, static_cast<int64_t>(read_bytes(path).size()));
  const Json tied = inspect(fixture("gguf/llama3_tied_q8_0.gguf"));
  EXPECT_LT(tied["tensor_bytes"], read_bytes(fixture("gguf/llama3_tied_q8_0.gguf")).size());
  const std::string text = run_ferry({"inspect", path}).out;
  EXPECT_NE(
      text.find("token_embd.weight         q8_0      [2, 256]                         544 B\n"),
      std::string::npos)
      << text;
  EXPECT_EQ(text.find(" f32       [2, 256] "), std::string::npos) << text;
}

// The stored form of a tensor is shown for every format.
TEST(Inspect, ShowsTheStoredFormOfEveryTensor) {
  for (const char* name : {"llama3_tied", "llama3_tied_bin", "gguf/llama3_tied_f16.gguf",
                           "keras/qwen2", "official_pte/llama_tiny_ext.ptd"}) {
    const Json listing = inspect(fixture(name));
    ASSERT_FALSE(listing["tensors"].empty()) << name;
    for (const Json& tensor : listing["tensors"]) {
      EXPECT_EQ(tensor["stored"], tensor["dtype"]) << name;
      EXPECT_EQ(tensor["stored_bytes"], tensor["bytes"]) << name;
    }
  }
  std::map<std::string, Json> zipped;
  const Json views = inspect(fixture("torch/views_zipped.bin"));
  for (const Json& tensor : views["tensors"]) {
    zipped[tensor["stored"].get<std::string>()] = tensor;
  }
  EXPECT_TRUE(zipped.contains("f32 deflate") && zipped.contains("f32 view deflate"));
  // The columns are aligned, however long the names of the forms are.
  const std::string text = run_ferry({"inspect", fixture("torch/views_zipped.bin")}).out;
  EXPECT_NE(text.find("  plain            f32 deflate       [3, 4, 5] "), std::string::npos)
      << text;
  EXPECT_TRUE(inspect(fixture("torch/views.bin")).dump().find("f32 view\"") != std::string::npos);
  std::map<std::string, size_t> chunked;
  const Json layouts = inspect(fixture("hdf5/layouts.h5"));
  for (const Json& tensor : layouts["tensors"]) {
    ++chunked[tensor["stored"].get<std::string>()];
    EXPECT_GE(tensor["stored_bytes"].get<int64_t>(), 0);
  }
  EXPECT_GT(chunked.size(), 2u);
}

// A tied head is the same segment as the embedding. It is marked so, and counts once.
TEST(Inspect, CountsSharedBytesOnce) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  const Json manifest = Json::parse(read_bytes(dir / "b/manifest.json"));
  std::map<int64_t, int64_t> segments;
  for (const Json& tensor : manifest["tensors"]) segments[tensor["offset"]] = tensor["bytes"];
  ASSERT_EQ(segments.size() + 1, manifest["tensors"].size());
  int64_t total = 0;
  for (const auto& [offset, bytes] : segments) total += bytes;
  for (const char* path : {"b", "b/decoder-00001-of-00001.ptd"}) {
    const Json listing = inspect(dir / path);
    EXPECT_EQ(listing["tensor_bytes"], total) << path;
    std::vector<std::pair<std::string, std::string>> shared;
    for (const Json& tensor : listing["tensors"]) {
      if (tensor.contains("shares")) shared.emplace_back(tensor["name"], tensor["shares"]);
    }
    ASSERT_EQ(shared.size(), 1U) << path;
    const auto& [name, with] = shared.front();
    EXPECT_TRUE((name == "output.weight" && with == "tok_embeddings.weight") ||
                (name == "tok_embeddings.weight" && with == "output.weight"))
        << name << " " << with;
    const std::string text = run_ferry({"inspect", dir / path}).out;
    EXPECT_NE(text.find("  shared with '" + with + "'\n"), std::string::npos) << text;
  }
  EXPECT_EQ(inspect(dir / "b")["programs"][0]["external"].size(), manifest["tensors"].size());
}

TEST(Inspect, KnowsProgramsUnderOtherNames) {
  const TempDir dir;
  write_bytes(dir / "program.bin", read_bytes(fixture("official_pte/dyn.pte")));
  EXPECT_EQ(inspect(dir / "program.bin")["kind"], "program");
}

TEST(Inspect, ShowsABundle) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b", "--shards", "2"}).code,
            0);
  const Json listing = inspect(dir / "b");
  EXPECT_EQ(listing["kind"], "bundle");
  EXPECT_EQ(listing["model_type"], "llama");
  EXPECT_EQ(listing["programs"].size(), 2U);
}

TEST(Inspect, EscapesHostileNames) {
  const TempDir dir;
  const std::string path = dir / "model.safetensors";
  TensorFile file(fixture("llama3_tied/model.safetensors"));
  file.rename("model.norm.weight", "evil\x1b[31m\n\"name");
  file.write(path);
  const Outcome text = run_ferry({"inspect", path});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  std::set<std::string> names;
  const Json listing = inspect(path);
  for (const Json& tensor : listing["tensors"]) names.insert(tensor["name"]);
  EXPECT_TRUE(names.contains("evil\x1b[31m\n\"name"));
}

TEST(Inspect, SeveralAbsentShardsAreOneLine) {
  const TempDir dir;
  dir.write("model.safetensors.index.json",
            R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})");
  const Outcome outcome = run_ferry({"inspect", dir.path()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  EXPECT_NE(outcome.err.find("m-1.safetensors"), std::string::npos);
}

TEST(Inspect, RefusesMalformedFilesInOneLine) {
  for (const char* file :
       {"hostile/safetensors/off_overlap.safetensors",
        "hostile/safetensors/len_past_eof.safetensors", "hostile/executorch/pte_vtable_wild.pte",
        "hostile/executorch/ptd_seg_overlap.ptd",
        "hostile/index/idx_absolute/model.safetensors.index.json"}) {
    const Outcome outcome = run_ferry({"inspect", fixture(file)});
    EXPECT_EQ(outcome.code, 3) << file;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace ferry::verb_inspect_test
