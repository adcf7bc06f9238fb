// Audits of every file that we can read, of every format and by many writers: the sizes of the
// leaves add up to the size that the file system states.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "audit/audit.h"
#include "audit/findings.h"
#include "audit/views.h"
#include "tests/audit/small_audit.h"

namespace ferry::audit::audit_test {
namespace {

namespace fs = std::filesystem;

const std::string kTestdata = FERRY_TESTDATA;

class Files : public testing::Test {
 protected:
  Result<Audit> audit(const std::string& path, bool digests = false) {
    return audit_path(path, {.digests = digests}, pool_);
  }

  // Returns whether the file can be read. The leaves of a file that can be read must add up.
  bool check(const std::string& path) {
    const Result<Audit> made = audit(path);
    if (!made) return false;
    const fs::path base = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
    std::vector<uint64_t> ends(made->files.size(), 0);
    for (const Leaf& leaf : made->leaves) {
      if (leaf.bytes == 0) continue;
      EXPECT_EQ(leaf.offset, ends[leaf.file]) << path << " " << leaf.name;
      ends[leaf.file] += leaf.bytes;
      EXPECT_NE(leaf.kind, LeafKind::kUnaccounted) << path;
    }
    uint64_t total = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      EXPECT_EQ(ends[i], fs::file_size(base / made->files[i].path)) << path;
      total += ends[i];
    }
    for (size_t i = 0; i < kViewKeys; ++i) {
      uint64_t sum = 0;
      for (const ViewRow& row : view(*made, {static_cast<ViewKey>(i)}, ViewOrder::kBytes)) {
        sum += row.bytes;
      }
      EXPECT_EQ(sum, total) << path;
    }
    return true;
  }

  // Counts the files below the directories that can be read, by file name extension.
  std::map<std::string, int> check_all(const std::vector<std::string>& directories) {
    std::map<std::string, int> read;
    for (const std::string& name : directories) {
      for (const auto& entry : fs::recursive_directory_iterator(kTestdata + "/" + name)) {
        if (entry.is_regular_file() && check(entry.path())) {
          ++read[entry.path().extension().string()];
        }
      }
    }
    return read;
  }

  // Returns the leaves of that name.
  static std::vector<const Leaf*> named(const Audit& audit, std::string_view name) {
    std::vector<const Leaf*> out;
    for (const Leaf& leaf : audit.leaves) {
      if (leaf.name == name) out.push_back(&leaf);
    }
    return out;
  }

  ThreadPool pool_{2};
};

TEST_F(Files, AllFixturesAddUp) {
  auto read = check_all({"official_pte", "xnnpack", "gguf", "hdf5", "torch", "safetensors",
                         "llama3_tied", "llama3_tied_bin", "static_llama"});
  EXPECT_GE(read[".pte"], 9);
  EXPECT_GE(read[".ptd"], 3);
  EXPECT_GE(read[".gguf"], 12);
  EXPECT_GE(read[".h5"], 8);
  EXPECT_GE(read[".bin"], 1);
  EXPECT_GE(read[".safetensors"], 10);
}

TEST_F(Files, FoldersCountAllTheirFiles) {
  for (const char* name : {"llama3_tied", "llama3_tied_bin", "official_pte", "llama3_tied/"}) {
    const std::string path = kTestdata + "/" + name;
    EXPECT_TRUE(check(path)) << path;
    const Result<Audit> made = audit(path);
    ASSERT_TRUE(made);
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
    EXPECT_EQ(made->bytes(), bytes) << path;
  }
}

TEST_F(Files, AGgufFileIsListedAsItStoresItsTensors) {
  const Result<Audit> made = audit(kTestdata + "/gguf/llama3_tied_q8_0.gguf");
  ASSERT_TRUE(made);
  const auto found = named(*made, "blk.0.attn_q.weight");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]->encoding, "q8_0");
  EXPECT_EQ(found[0]->bytes, found[0]->elements / 32 * 34);
  EXPECT_GT(made->bytes_of(LeafKind::kTokenizer), 0U);
}

TEST_F(Files, ConstantsOfAProgramSayWhatUsesThem) {
  const Result<Audit> made = audit(kTestdata + "/official_pte/qwen35_dyn.pte");
  ASSERT_TRUE(made);
  size_t ropes = 0;
  for (const Leaf& leaf : made->leaves) {
    if (leaf.kind != LeafKind::kConstant) continue;
    EXPECT_FALSE(leaf.use.empty()) << leaf.name;
    ropes += leaf.component == "rope" ? 1 : 0;
  }
  EXPECT_EQ(ropes, 2U);
  ASSERT_TRUE(made->memory);
  EXPECT_GT(made->memory->state_bytes(), 0U);
}

TEST_F(Files, StateWithContentsIsInTheFileAndWithoutItIsNot) {
  const Result<Audit> stored = audit(kTestdata + "/official_pte/state_init.pte");
  const Result<Audit> fresh = audit(kTestdata + "/official_pte/state_noinit.pte");
  ASSERT_TRUE(stored && fresh);
  EXPECT_GT(stored->bytes_of(LeafKind::kBufferInit), 0U);
  EXPECT_EQ(fresh->bytes_of(LeafKind::kBufferInit), 0U);
  EXPECT_GT(fresh->memory->state_bytes(), 0U);
}

TEST_F(Files, TiedTensorsOfPyTorchCountOnce) {
  const Result<Audit> made = audit(kTestdata + "/llama3_tied_bin");
  ASSERT_TRUE(made);
  const auto found = named(*made, "model.embed_tokens.weight");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]->tied, std::vector<std::string>{"lm_head.weight"});
}

TEST_F(Files, DigestsAreThoseOfTheBytes) {
  const Result<Audit> made = audit(kTestdata + "/llama3_tied", true);
  ASSERT_TRUE(made);
  for (const Leaf& leaf : made->leaves) EXPECT_EQ(leaf.sha256.size(), 64U) << leaf.name;
  const auto config = named(*made, "config.json");
  ASSERT_EQ(config.size(), 1U);
  EXPECT_EQ(config[0]->kind, LeafKind::kMetadata);
}

TEST_F(Files, WhatIsNoArtifactIsRefused) {
  for (const char* name : {"README.md", "absent", "configs"}) {
    EXPECT_FALSE(audit(kTestdata + "/" + name)) << name;
  }
}

TEST(Findings, CopiesAreFoundByTheirDigests) {
  Audit audit{.name = "a", .type = "checkpoint"};
  audit.files = {{"f", 30'000, "safetensors"}};
  audit.leaves = {tensor_leaf(0, 0, 10'000, "e", "aa"), tensor_leaf(0, 10'000, 10'000, "h", "aa"),
                  tensor_leaf(0, 20'000, 10'000, "t", "bb")};
  auto findings = find_all(audit);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].id, "duplicate");
  EXPECT_EQ(findings[0].bytes, 10'000U);
  audit.leaves[0].component = "embedding";
  audit.leaves[1].component = "head";
  findings = find_all(audit);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].id, "untied-equal");
  for (const Finding& finding : findings) EXPECT_TRUE(is_finding(finding.id));
}

}  // namespace
}  // namespace ferry::audit::audit_test
