// The statements of a bundle about its making, and the files of a release that are copied into it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/ferry_process.h"

namespace ferry::provenance_test {
namespace {

using Json = nlohmann::json;

Json manifest_of(const std::string& bundle) {
  return Json::parse(read_bytes(bundle + "/manifest.json"));
}

// Returns "name=value" for each option.
std::vector<std::string> options_of(const std::string& bundle) {
  std::vector<std::string> options;
  const Json manifest = manifest_of(bundle);
  for (const Json& option : manifest["options"]) {
    options.push_back(option["name"].get<std::string>() + "=" + option["value"].get<std::string>());
  }
  return options;
}

TEST(Provenance, TheManifestNamesTheProgramAsVersionDoes) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "b"}).code, 0);
  const Json tool = manifest_of(dir / "b")["tool"];
  EXPECT_EQ(tool["name"], "ferry");
  const std::string version = run_ferry({"--version"}).out;
  EXPECT_EQ(version.substr(0, version.find('\n')), "ferry " + tool["version"].get<std::string>());
  EXPECT_NE(run_ferry({"inspect", dir / "b"})
                .out.find("\nmade by ferry " + tool["version"].get<std::string>() +
                          ": dtype keep, quantize none, "),
            std::string::npos);
}

TEST(Provenance, OptionsThatDecideBytesAreStatedWithTheirValues) {
  const TempDir dir;
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "plain"}).code, 0);
  EXPECT_EQ(options_of(dir / "plain"),
            (std::vector<std::string>{"dtype=keep", "quantize=none", "quantize-embedding=none",
                                      "program=stateful", "shards=1", "context-length=512",
                                      "prefill-length=512", "kv-dtype=f32", "logits=last",
                                      "init-buffers=none", "packed-layout=own"}));
  ASSERT_EQ(run_ferry({"convert",
                       fixture("llama3_tied"),
                       "-o",
                       dir / "given",
                       "--dtype",
                       "bf16",
                       "--component-dtype",
                       "text_decoder=f32",
                       "--quantize",
                       "8da4w",
                       "--quantize-rule",
                       "*.w2=none",
                       "--shards",
                       "2",
                       "--max-file-size",
                       "2M",
                       "--context-length",
                       "64",
                       "--kv-dtype",
                       "i8",
                       "--logits",
                       "all",
                       "--allow-unmapped",
                       "x.*",
                       "--threads",
                       "2"})
                .code,
            0);
  EXPECT_EQ(options_of(dir / "given"),
            (std::vector<std::string>{
                "dtype=bf16", "component-dtype=text_decoder=f32", "quantize=8da4w-g32",
                "quantize-embedding=none", "quantize-rule=*.w2=none", "quantize-method=bf16-first",
                "program=stateful", "shards=2", "max-file-size=2000000", "context-length=64",
                "prefill-length=64", "kv-dtype=i8", "logits=all", "init-buffers=none",
                "packed-layout=own", "allow-unmapped=x.*"}));
  ASSERT_EQ(run_ferry({"convert", fixture("llama3_tied"), "-o", dir / "static", "--program",
                       "static", "--kv-dtype", "f16", "--softmax", "masked"})
                .code,
            0);
  EXPECT_EQ(options_of(dir / "static"),
            (std::vector<std::string>{
                "dtype=keep", "quantize=none", "quantize-embedding=none", "program=static",
                "shards=1", "context-length=512", "prefill-length=128", "shards-in-one-file=false",
                "attention=mha", "softmax=masked", "rotate=none", "decode-length=1", "kv-dtype=f16",
                "mask-dtype=f32", "logits-dtype=f32", "packed-layout=own"}));
}

const std::map<std::string, std::string> kCarried = {
    {"LICENSE", "Do as you like.\n"},   {"License-Model.md", "# A licence"},
    {"NOTICE.txt", "Made by somebody"}, {"USE_POLICY.md", ""},
    {"README.md", "---\nlicense: x\n"}, {"added_tokens.json", "{}"},
    {"merges.txt", "#version: 0.2\n"},  {"tokenizer.model", std::string("\0\n\x7f", 3)},
    {"vocab.json", "{\"a\": 0}"},
};

TEST(Provenance, LicencesAndTokenizersOfOtherProgramsComeAlong) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  for (const auto& [name, bytes] : kCarried) write_bytes(source + "/" + name, bytes);
  for (const char* other : {"notes.txt", "train.py", "LICENSE.exe", "licensed", "optimizer.pt"}) {
    write_bytes(source + "/" + other, "x");
  }
  const Outcome made = run_ferry({"convert", source, "-o", dir / "b"});
  ASSERT_EQ(made.code, 0) << made.err;
  // The file is not a SentencePiece model, but another program may know its format.
  EXPECT_TRUE(made.err.starts_with("ferry: " + source + "/tokenizer.model: ")) << made.err;
  EXPECT_EQ(std::ranges::count(made.err, '\n'), 1);
  std::map<std::string, std::string> files = files_in(dir / "b");
  for (const auto& [name, bytes] : kCarried) {
    ASSERT_TRUE(files.contains(name)) << name;
    EXPECT_EQ(files[name], bytes) << name;
  }
  for (const char* other : {"notes.txt", "train.py", "LICENSE.exe", "licensed", "optimizer.pt"}) {
    EXPECT_FALSE(files.contains(other)) << other;
  }
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
  // The manifest has the digests of the copied files: a changed licence is found.
  write_bytes(dir / "b/LICENSE", "Do as I like!!!\n");
  const Outcome checked = run_ferry({"check", dir / "b"});
  EXPECT_EQ(checked.code, 1);
  EXPECT_NE((checked.out + checked.err).find("LICENSE"), std::string::npos) << checked.out;
}

TEST(Provenance, WhatCannotComeAlongIsLeftOutWithANote) {
  const TempDir dir;
  const std::string source = changed_checkpoint(dir, "llama3_tied", [](TensorFile&) {});
  write_bytes(dir / "secret", "not of this checkpoint");
  std::filesystem::create_symlink(dir / "secret", source + "/LICENSE");
  ASSERT_EQ(::mkfifo((source + "/NOTICE").c_str(), 0600), 0);
  std::filesystem::create_directory(source + "/COPYING");
  write_bytes(source + "/README.md", "");
  std::filesystem::resize_file(source + "/README.md", (uint64_t{16} << 20) + 1);
  write_bytes(source + "/LICENSE-\xc3\xa9", "an e with an accent");
  const Outcome made = run_ferry({"convert", source, "-o", dir / "b"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(std::ranges::count(made.err, '\n'), 5) << made.err;
  for (const char* note :
       {"/LICENSE: a symbolic link out of the checkpoint directory", "/NOTICE: ", "/COPYING: ",
        "/README.md: 16777217 bytes, files of this kind have at most 16777216",
        "a name that is not plain ASCII; the bundle will not have it\n"}) {
    EXPECT_NE(made.err.find(note), std::string::npos) << note << "\n" << made.err;
  }
  for (const auto& [name, bytes] : files_in(dir / "b")) {
    EXPECT_NE(bytes, "not of this checkpoint") << name;
  }
  EXPECT_EQ(run_ferry({"check", dir / "b"}).code, 0);
  EXPECT_EQ(run_ferry({"convert", source, "-o", dir / "b", "--overwrite", "--quiet"}).err, "");
}

// If a directory is the source, files beside its GGUF file are copied. If a file is the source,
// they might belong to another model.
TEST(Provenance, FilesBesideGgufComeAlongFromADirectoryOnly) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "ck");
  std::filesystem::copy_file(fixture("gguf/llama3_tied_f16.gguf"), dir / "ck/model.gguf");
  write_bytes(dir / "ck/LICENSE", "Do as you like.\n");
  ASSERT_EQ(run_ferry({"convert", dir / "ck", "-o", dir / "a"}).code, 0);
  EXPECT_EQ(read_bytes(dir / "a/LICENSE"), "Do as you like.\n");
  ASSERT_EQ(run_ferry({"convert", dir / "ck/model.gguf", "-o", dir / "b"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(dir / "b/LICENSE"));
}

TEST(Provenance, KeysOfTheConfigThatNothingUsedAreNoted) {
  const TempDir dir;
  const std::string source =
      changed_config(dir, "llama3_tied", {{"some_new_key", 1}, {"another", 2}});
  const Outcome made = run_ferry({"convert", source, "-o", dir / "b"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.err,
            "ferry: 2 config keys have no effect, 'another' among them (--dry-run lists all)\n");
  EXPECT_EQ(run_ferry({"convert", source, "-o", dir / "c", "--quiet"}).err, "");
}

}  // namespace
}  // namespace ferry::provenance_test
