// Packed projections: the checkpoints are made here, row by row, of checkpoints whose parts are
// stored apart.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "tests/cli/ferry_process.h"

namespace ferry::packed_test {
namespace {

using Names = std::vector<std::string>;

// Returns the rows of the tensors `names` one after the other. With `rows`, takes rows[i] rows of
// each tensor i in turn until none are left.
std::string pack(const TensorFile& file, const Names& names, const std::vector<int64_t>& rows) {
  std::string packed;
  if (rows.empty()) {
    for (const std::string& name : names) packed += file.bytes_of(name);
    return packed;
  }
  std::vector<std::string> parts;
  for (const std::string& name : names) parts.push_back(file.bytes_of(name));
  const size_t row = parts.back().size() / file.header[names.back()]["shape"][0].get<size_t>();
  for (size_t turn = 0; turn * static_cast<size_t>(rows.back()) * row < parts.back().size();
       ++turn) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t count = static_cast<size_t>(rows[i]) * row;
      packed += parts[i].substr(turn * count, count);
    }
  }
  return packed;
}

// Replaces the tensors `parts` by one tensor `whole`, for every layer and for weights and biases.
void pack_all(TensorFile& file, const Names& parts, const std::string& whole,
              const std::vector<int64_t>& rows) {
  TensorFile out = file;
  out.header = nlohmann::ordered_json::object();
  out.data.clear();
  for (const auto& item : file.header.items()) {
    const std::string& name = item.key();
    const auto& entry = item.value();
    if (name == "__metadata__") continue;
    const auto is_part = [&](const std::string& part) {
      return name.find("." + part + ".") != std::string::npos;
    };
    if (is_part(parts[0])) {
      const size_t at = name.find(parts[0]);
      const auto with = [&](const std::string& other) {
        return name.substr(0, at) + other + name.substr(at + parts[0].size());
      };
      Names names;
      auto shape = entry["shape"].get<std::vector<int64_t>>();
      shape[0] = 0;
      for (const std::string& part : parts) {
        names.push_back(with(part));
        shape[0] += file.header[names.back()]["shape"][0].get<int64_t>();
      }
      out.append(with(whole), entry["dtype"], shape, pack(file, names, rows));
    } else if (std::none_of(parts.begin(), parts.end(), is_part)) {
      out.append(name, entry["dtype"], entry["shape"], file.bytes_of(name));
    }
  }
  file = out;
}

struct Export {
  const char* checkpoint;
  std::vector<int64_t> qkv_rows;  // rows of q, k and v per key-value head
};
constexpr const char* kLayouts[] = {"concatenated", "interleaved"};

// Packs the projections of e.checkpoint in `layout`.
std::string packed_checkpoint(const TempDir& dir, const Export& e, const std::string& layout) {
  const bool turns = layout == "interleaved";
  return changed_checkpoint(dir, e.checkpoint, [&](TensorFile& file) {
    pack_all(file, {"q_proj", "k_proj", "v_proj"}, "qkv_proj",
             turns ? e.qkv_rows : std::vector<int64_t>{});
    pack_all(file, {"gate_proj", "up_proj"}, "gate_up_proj",
             turns ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{});
  });
}

const Export kExports[] = {{"golden/qwen3", {64, 32, 32}}, {"golden/llama_bias_mqa", {96, 32, 32}}};

TEST(PackedExport, GivesTheSameWeightsAsThePartsInEitherLayout) {
  for (const Export& e : kExports) {
    const TempDir plain_dir;
    ASSERT_EQ(run_ferry({"convert", fixture(e.checkpoint), "-o", plain_dir / "b"}).code, 0);
    const auto plain = files_in(plain_dir / "b");
    for (const std::string layout : kLayouts) {
      SCOPED_TRACE(e.checkpoint + (" " + layout));
      const TempDir dir;
      const std::string source = packed_checkpoint(dir, e, layout);
      const Outcome made =
          run_ferry({"convert", source, "-o", dir / "b", "--packed-layout", layout});
      ASSERT_EQ(made.code, 0) << made.err;
      EXPECT_EQ(made.err, "");
      EXPECT_EQ(run_ferry({"verify", dir / "b", "--checkpoint", source}).code, 0);
      for (const auto& [name, bytes] : files_in(dir / "b")) {
        if (name.ends_with(".pte") || name.ends_with(".ptd")) {
          EXPECT_TRUE(plain.at(name) == bytes) << name;
        }
      }
      const auto manifest = nlohmann::json::parse(read_bytes(dir / "b/manifest.json"));
      std::set<std::string> rules;
      for (const auto& tensor : manifest["tensors"]) rules.insert(tensor["rule"]);
      EXPECT_TRUE(rules.contains(layout == "interleaved"
                                     ? "split qkv_proj [q.. k v] per key-value head"
                                     : "split qkv_proj [q | k | v]"));
    }
  }
}

TEST(PackedExport, IsRefusedUnlessSomebodySaysWhichLayoutItHas) {
  const TempDir dir;
  const std::string source = packed_checkpoint(dir, kExports[0], "concatenated");
  const Outcome refused = run_ferry({"convert", source, "-o", dir / "b"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(
      refused.err.find("ambiguous: 'model.layers.0.self_attn.qkv_proj.weight' [256, 64] may be "
                       "'split qkv_proj [q | k | v]' (concatenated) or 'split qkv_proj "
                       "[q.. k v] per key-value head' (interleaved); --packed-layout says which"),
      std::string::npos)
      << refused.err;
  const auto document = run_ferry({"convert", source, "--dry-run", "--json"}).json();
  EXPECT_EQ(document["problems"][0]["kind"], "ambiguous");
  EXPECT_EQ(document["ambiguous"][0], document["problems"][0]["key"]);
  // The targets of an ambiguous key are not reported as missing too.
  EXPECT_EQ(refused.err.find("missing"), std::string::npos) << refused.err;
}

// Readers of GGUF store q, k and v apart: the file equals that of the checkpoint that stores them
// apart.
TEST(PackedExport, AGgufFileHasThePartsApart) {
  for (const Export& e : kExports) {
    for (const std::string layout : kLayouts) {
      SCOPED_TRACE(e.checkpoint + (" " + layout));
      const TempDir dir;
      const Outcome made =
          run_ferry({"convert", packed_checkpoint(dir, e, layout), "--packed-layout", layout,
                     "--to", "gguf", "--outtype", "q8_0", "-o", dir / "m.gguf"});
      ASSERT_EQ(made.code, 0) << made.err;
      const Outcome verified =
          run_ferry({"verify", dir / "m.gguf", "--checkpoint", fixture(e.checkpoint)});
      EXPECT_EQ(verified.code, 0) << verified.err;
    }
  }
}

// The experts of a layer are two tensors, as transformers has them in memory.
TEST(FusedExperts, GiveTheGgufFileOfExpertsApart) {
  const TempDir dir;
  const std::string fused = changed_checkpoint(dir, "golden/qwen3_moe_bf16", [](TensorFile& file) {
    TensorFile out = file;
    out.header = nlohmann::ordered_json::object();
    out.data.clear();
    for (const auto& item : file.header.items()) {
      const std::string& name = item.key();
      const size_t at = name.find(".mlp.experts.");
      if (name == "__metadata__") continue;
      if (at == std::string::npos) {
        out.append(name, item.value()["dtype"], item.value()["shape"], file.bytes_of(name));
      } else if (name.ends_with(".experts.0.down_proj.weight")) {
        const std::string experts = name.substr(0, at + 13);
        std::string down, gate_up;
        int64_t count = 0;
        auto shape = item.value()["shape"].get<std::vector<int64_t>>();
        for (; file.header.contains(experts + std::to_string(count) + ".up_proj.weight"); ++count) {
          const std::string expert = experts + std::to_string(count);
          down += file.bytes_of(expert + ".down_proj.weight");
          gate_up += file.bytes_of(expert + ".gate_proj.weight");
          gate_up += file.bytes_of(expert + ".up_proj.weight");
        }
        out.append(experts + "down_proj", item.value()["dtype"], {count, shape[0], shape[1]}, down);
        out.append(experts + "gate_up_proj", item.value()["dtype"], {count, 2 * shape[1], shape[0]},
                   gate_up);
      }
    }
    file = out;
  });
  for (const auto& [source, name] :
       {std::pair(fused, "fused.gguf"), {fixture("golden/qwen3_moe_bf16"), "apart.gguf"}}) {
    const Outcome made =
        run_ferry({"convert", source, "--to", "gguf", "--outtype", "q8_0", "-o", dir / name});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  EXPECT_TRUE(read_bytes(dir / "fused.gguf") == read_bytes(dir / "apart.gguf"));
}

TEST(PackedExport, OneKeyValueHeadLeavesNothingToChoose) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, kExports[1].checkpoint, [](TensorFile& file) {
    pack_all(file, {"q_proj", "k_proj", "v_proj"}, "qkv_proj", {});
  });
  const Outcome made = run_ferry({"convert", source, "-o", dir / "b"});
  EXPECT_EQ(made.code, 0) << made.err;
}

TEST(PackedExport, AWrongNumberOfRowsSaysWhatWasExpected) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, kExports[0].checkpoint, [](TensorFile& file) {
    pack_all(file, {"q_proj", "k_proj"}, "qkv_proj", {});
  });
  const Outcome refused =
      run_ferry({"convert", source, "-o", dir / "b", "--packed-layout", "concatenated"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.err.find("has 192 rows, the config wants"), std::string::npos) << refused.err;
}

TEST(PackedExport, ALayoutForNothingIsAMistake) {
  const TempDir dir;
  const Outcome refused = run_ferry(
      {"convert", fixture("golden/qwen3"), "-o", dir / "b", "--packed-layout", "interleaved"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.error_lines(), 1U);
  EXPECT_NE(refused.err.find("--packed-layout"), std::string::npos);
}

// The fixture has four blocks, as CodeGen. CodeGen2 has eight, and its config states head_dim.
TEST(PackedCodegen, EightBlocksGiveTheSameWeightsAsFour) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "golden/codegen", [](TensorFile& file) {
    for (const std::string layer : {"0", "1"}) {
      const std::string name = "transformer.h." + layer + ".attn.qkv_proj.weight";
      const std::string rows = file.bytes_of(name);
      const size_t head = 8 * 64 * sizeof(float);  // head_dim 8, hidden size 64
      std::string moved;
      for (size_t h = 0; h < 8; ++h) {
        for (size_t kind = 0; kind < 3; ++kind) {
          moved += rows.substr(((h / 2) * 6 + kind * 2 + h % 2) * head, head);
        }
      }
      file.set_bytes(name, moved);
    }
  });
  auto config = nlohmann::json::parse(read_bytes(fixture("golden/codegen/config.json")));
  config["head_dim"] = 8;
  write_bytes(dir / "codegen2.json", config.dump());
  ASSERT_EQ(run_ferry({"convert", fixture("golden/codegen"), "-o", dir / "four"}).code, 0);
  const Outcome made =
      run_ferry({"convert", source, "-o", dir / "eight", "--config", dir / "codegen2.json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const auto four = files_in(dir / "four"), eight = files_in(dir / "eight");
  for (const auto& [name, bytes] : four) {
    if (name.ends_with(".ptd") || name.ends_with(".pte")) {
      EXPECT_TRUE(eight.at(name) == bytes) << name;
    }
  }
}

}  // namespace
}  // namespace ferry::packed_test
