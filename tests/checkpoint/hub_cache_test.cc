#include "checkpoint/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/formats/temp_dir.h"

namespace ferry::checkpoint {
namespace {

namespace fs = std::filesystem;

const char* const kVariables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                  "XDG_CACHE_HOME", "HOME"};

// A cache with one model, in the layout that huggingface_hub makes.
class HubNames : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      saved_.emplace_back(value == nullptr ? std::optional<std::string>() : value);
      unsetenv(name);
    }
    set("HF_HUB_CACHE", dir_.path());
  }
  void TearDown() override {
    for (size_t i = 0; i < saved_.size(); ++i) {
      if (saved_[i]) {
        set(kVariables[i], *saved_[i]);
      } else {
        unsetenv(kVariables[i]);
      }
    }
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

  // Adds a file to a snapshot, as a link to a blob.
  void add(const std::string& model, const std::string& commit, const std::string& file) {
    const std::string blob = std::to_string(++blobs_);
    dir_.write(model + "/blobs/" + blob, "x");
    const std::string path = dir_ / (model + "/snapshots/" + commit + "/" + file);
    fs::create_directories(fs::path(path).parent_path());
    fs::create_symlink(
        (file.find('/') == std::string::npos ? "../../blobs/" : "../../../blobs/") + blob, path);
  }
  void tag(const std::string& model, const std::string& name, const std::string& commit) {
    dir_.write(model + "/refs/" + name, commit);
  }
  std::string snapshot(const std::string& model, const std::string& commit) {
    return dir_ / (model + "/snapshots/" + commit);
  }
  // Returns the path that the text means below the cache, or the message of the error.
  std::string found(const std::string& text) {
    const Result<std::string> path = find_source(text);
    if (!path) return path.error().message;
    return path->starts_with(dir_ / "") ? path->substr((dir_ / "").size()) : *path;
  }

  TempDir dir_;

 private:
  int blobs_ = 0;
  std::vector<std::optional<std::string>> saved_;
};

TEST_F(HubNames, TheVariablesOfHuggingFaceSayWhereItIs) {
  EXPECT_EQ(hub_cache_directory(), dir_.path());
  unsetenv("HF_HUB_CACHE");
  set("HOME", "/h");
  EXPECT_EQ(hub_cache_directory(), "/h/.cache/huggingface/hub");
  set("XDG_CACHE_HOME", "/x");
  EXPECT_EQ(hub_cache_directory(), "/x/huggingface/hub");
  set("HF_HOME", "~/hf");
  EXPECT_EQ(hub_cache_directory(), "/h/hf/hub");
  set("HUGGINGFACE_HUB_CACHE", "/old");
  EXPECT_EQ(hub_cache_directory(), "/old");
}

TEST_F(HubNames, ANameMeansTheSnapshotOfItsRevision) {
  const std::string model = "models--Qwen--Qwen3-0.6B";
  add(model, "aaaa1111", "config.json");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B"), model + "/snapshots/aaaa1111");  // the only one
  add(model, "bbbb2222", "config.json");
  add(model, "bbbb3333", "config.json");
  tag(model, "main", "bbbb2222\n");
  tag(model, "v1.0", "aaaa1111");
  tag(model, "refs/pr/1", "bbbb3333");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B"), model + "/snapshots/bbbb2222");
  EXPECT_EQ(found("hf://Qwen/Qwen3-0.6B"), model + "/snapshots/bbbb2222");
  EXPECT_EQ(found("https://huggingface.co/Qwen/Qwen3-0.6B"), model + "/snapshots/bbbb2222");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B@v1.0"), model + "/snapshots/aaaa1111");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B@refs/pr/1"), model + "/snapshots/bbbb3333");
  EXPECT_EQ(found("Qwen/Qwen3-0.6B@aaaa"), model + "/snapshots/aaaa1111");
  EXPECT_NE(
      found("Qwen/Qwen3-0.6B@bbbb").find("several commits begin with bbbb: bbbb2222, bbbb3333"),
      std::string::npos);
}

TEST_F(HubNames, WhatIsAbsentIsSaidWithTheCommandThatDownloadsIt) {
  EXPECT_EQ(found("Qwen/Qwen3-0.6B"),
            "Qwen/Qwen3-0.6B: no such file or directory, and no model of this name in the Hugging "
            "Face cache " +
                dir_.path() + "; to download it: hf download Qwen/Qwen3-0.6B");
  add("models--a--b", "aaaa1111", "config.json");
  EXPECT_TRUE(found("a/b@v2").ends_with("no revision v2 in the Hugging Face cache " + dir_.path() +
                                        "; to download it: hf download a/b --revision v2"));
  tag("models--a--b", "main", "cccc");
  EXPECT_NE(found("a/b").find("no snapshot of main"), std::string::npos);
  EXPECT_TRUE(found("a/c:Q4_K_M").ends_with("hf download a/c --include '*Q4_K_M*.gguf'"));
}

TEST_F(HubNames, WhatIsNoNameIsLeftAsItIs) {
  fs::create_directories(dir_ / "local");
  for (const std::string& text :
       {dir_ / "local", std::string("./Qwen/absent"), std::string("/Qwen/absent"),
        std::string("a/b/c"), std::string("absent"), std::string("../a/b"), std::string("a/.."),
        std::string("a/b@../c"), std::string("a/b:../c"), std::string("a/b@"), std::string("a/b:"),
        std::string()}) {
    EXPECT_EQ(find_source(text).value_or("failed"), text) << text;
  }
}

TEST_F(HubNames, ARefThatLeadsElsewhereIsNotFollowed) {
  add("models--a--b", "aaaa1111", "config.json");
  add("models--a--b", "bbbb1111", "config.json");
  tag("models--a--b", "main", "../../../etc");
  EXPECT_NE(found("a/b").find("no revision main"), std::string::npos) << found("a/b");
}

TEST_F(HubNames, AWordChoosesAGgufFile) {
  const std::string model = "models--o--m-GGUF", at = model + "/snapshots/aaaa1111/";
  for (const char* file : {"m-Q4_K.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "config.txt",
                           "BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf"}) {
    add(model, "aaaa1111", file);
  }
  EXPECT_EQ(found("o/m-GGUF:Q4_K_M"), at + "m-Q4_K_M.gguf");
  EXPECT_EQ(found("o/m-GGUF:q8_0"), at + "m-Q8_0.gguf");
  EXPECT_EQ(found("o/m-GGUF:Q4_K"), at + "m-Q4_K.gguf");
  EXPECT_EQ(found("o/m-GGUF:m-Q8_0.gguf"), at + "m-Q8_0.gguf");
  EXPECT_EQ(found("o/m-GGUF:bf16"), at + "BF16/m-BF16-00001-of-00002.gguf");
  const Result<std::string> several = find_source("o/m-GGUF");
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().code, ErrorCode::kUsage);
  EXPECT_EQ(several.error().details.size(), 4u);
  EXPECT_NE(several.error().message.find("4 GGUF files that fit; choose one, such as o/m-GGUF:"),
            std::string::npos);
  EXPECT_NE(found("o/m-GGUF:Q3").find("no GGUF file of that name"), std::string::npos);
}

TEST_F(HubNames, APathOrAPageChoosesAGgufFile) {
  const std::string model = "models--o--m-GGUF", at = model + "/snapshots/aaaa1111/";
  for (const char* file : {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "BF16/m.gguf"}) {
    add(model, "aaaa1111", file);
  }
  tag(model, "main", "aaaa1111");
  EXPECT_EQ(found("o/m-GGUF/m-Q8_0.gguf"), at + "m-Q8_0.gguf");
  EXPECT_EQ(found("o/m-GGUF/BF16/m.gguf"), at + "BF16/m.gguf");
  EXPECT_EQ(found("https://huggingface.co/o/m-GGUF/blob/main/m-Q8_0.gguf"), at + "m-Q8_0.gguf");
  EXPECT_EQ(found("https://huggingface.co/o/m-GGUF/resolve/main/BF16/m.gguf?download=true"),
            at + "BF16/m.gguf");
  EXPECT_EQ(found("hf.co/o/m-GGUF:Q4_K_M"), at + "m-Q4_K_M.gguf");
  EXPECT_TRUE(found("o/m-GGUF/m-Q2_K.gguf").ends_with("hf download o/m-GGUF m-Q2_K.gguf"))
      << found("o/m-GGUF/m-Q2_K.gguf");
}

TEST_F(HubNames, AModelWithoutAnOrganisationIsAWord) {
  add("models--gpt2", "aaaa1111", "config.json");
  EXPECT_EQ(found("gpt2"), "models--gpt2/snapshots/aaaa1111");
  EXPECT_EQ(found("gpt3"), "gpt3");
}

TEST_F(HubNames, AMissingPathIsNoName) {
  fs::create_directories("names_test_folder");
  EXPECT_EQ(found("names_test_folder/missing"), "names_test_folder/missing");
  fs::remove("names_test_folder");
  for (const char* file : {"models/m.gguf", "models/m.safetensors", "models/config.json"}) {
    EXPECT_EQ(found(file), file);
  }
}

TEST_F(HubNames, AnIncompleteSnapshotSaysWhatCompletesIt) {
  const std::string model = "models--a--b";
  add(model, "aaaa1111", "config.json");
  add(model, "aaaa1111", "model.safetensors");
  tag(model, "main", "aaaa1111");
  EXPECT_EQ(found("a/b"), model + "/snapshots/aaaa1111");
  fs::remove(dir_ / (model + "/blobs/2"));
  EXPECT_EQ(found("a/b"),
            "a/b: the snapshot in the Hugging Face cache is incomplete: the blob of "
            "'model.safetensors' is missing; to download the rest: hf download a/b --revision "
            "aaaa1111");
  dir_.write(model + "/blobs/2.incomplete", "x");
  EXPECT_NE(found("a/b").find("is missing; 1 download has not ended; to download the rest"),
            std::string::npos)
      << found("a/b");
  EXPECT_EQ(how_to_complete(dir_ / (model + "/snapshots/aaaa1111/")),
            "; 1 download has not ended; to download the rest: hf download a/b --revision "
            "aaaa1111");
  EXPECT_EQ(how_to_complete(dir_ / model), "");
  EXPECT_EQ(how_to_complete("/"), "");
  EXPECT_EQ(how_to_complete(""), "");
}

TEST_F(HubNames, AGgufFileIsALinkToABlobOrNone) {
  const std::string snapshot = "models--o--m/snapshots/aaaa1111";
  add("models--o--m", "aaaa1111", "m.gguf");
  dir_.write("secret", "x");
  fs::remove(dir_ / (snapshot + "/m.gguf"));
  for (const std::string& target :
       {std::string("../../../secret"), dir_ / "secret", std::string("../../blobs/../../secret")}) {
    fs::create_symlink(target, dir_ / (snapshot + "/m.gguf"));
    EXPECT_NE(found("o/m").find("a symbolic link out of the cache entry, to '"), std::string::npos)
        << found("o/m");
    fs::remove(dir_ / (snapshot + "/m.gguf"));
  }
}

TEST_F(HubNames, ASnapshotWithOneGgufFileMeansTheFile) {
  add("models--o--one", "aaaa1111", "m.gguf");
  EXPECT_EQ(found("o/one"), "models--o--one/snapshots/aaaa1111/m.gguf");
  add("models--o--both", "aaaa1111", "m.gguf");
  add("models--o--both", "aaaa1111", "config.json");
  EXPECT_EQ(found("o/both"), "models--o--both/snapshots/aaaa1111");
}

}  // namespace
}  // namespace ferry::checkpoint
