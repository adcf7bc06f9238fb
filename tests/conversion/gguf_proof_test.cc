// GGUF files, compared to the bit with those of llama.cpp's converter and llama-quantize.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "conversion/export.h"
#include "conversion/gguf_proof.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/thread_pool.h"
#include "tests/formats/temp_dir.h"

namespace ferry::conversion::gguf_proof_test {
namespace {

std::string testdata(const std::string& name) { return std::string(FERRY_TESTDATA) + "/" + name; }

ExportOptions options_of(const std::string& checkpoint, const std::string& type) {
  ExportOptions options;
  options.convert.source = testdata(checkpoint);
  options.format = ExportFormat::kGguf;
  options.type = type;
  options.model_name = "tiny";
  return options;
}

Result<packer::WrittenFiles> write(ExportOptions options, const std::string& out) {
  options.out = out;
  ThreadPool pool(2);
  const Export made = FERRY_TRY(plan_export(options, pool));
  if (!made.plan) return fail(ErrorCode::kInternal, "problems with keys");
  return made.plan->write({.path = out}, pool, {});
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The lines of the list are "CHECKPOINT TYPE SHA-256".
TEST(GgufExport, FilesAreThoseOfLlamaCpp) {
  std::ifstream table(testdata("gguf_written/digests.txt"));
  std::string checkpoint, type, digest;
  int count = 0;
  const TempDir dir;
  for (; table >> checkpoint >> type >> digest; ++count) {
    SCOPED_TRACE(checkpoint + " " + type);
    const std::string out = dir / (std::to_string(count) + ".gguf");
    const Result<packer::WrittenFiles> written = write(options_of(checkpoint, type), out);
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_EQ(written->files.size(), 1);
    EXPECT_EQ(to_hex(written->files[0].sha256), digest);
  }
  EXPECT_EQ(count, 189);
}

// Each part is a file of its own. The parts together have the bytes of the whole.
TEST(GgufExport, SplitsHoldTheTensorsOfTheWhole) {
  const TempDir dir;
  ExportOptions options = options_of("golden/llama", "f16");
  ASSERT_TRUE(write(options, dir / "whole.gguf"));
  options.max_tensors = 10;
  const Result<packer::WrittenFiles> split = write(options, dir / "parts");
  ASSERT_TRUE(split) << split.error().message;
  ASSERT_GT(split->files.size(), 2);
  EXPECT_TRUE(split->files[0].path.starts_with("model-00001-of-0000"));
  // Copied into one file again, the parts are the whole. The source may be the first part or the
  // folder.
  for (const std::string& source : {dir / ("parts/" + split->files[0].path), dir / "parts"}) {
    ExportOptions joined;
    joined.convert.source = source;
    joined.format = ExportFormat::kGguf;
    const std::string out = dir / (base_name(source) + ".joined.gguf");
    const Result<packer::WrittenFiles> written = write(joined, out);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(read_all(out), read_all(dir / "whole.gguf"));
  }
  // One file cannot hold all tensors under this limit.
  const auto one = write(options_of("golden/llama", "f16"), dir / "one.gguf");
  ASSERT_TRUE(one);
  ExportOptions limited = options_of("golden/llama", "f16");
  limited.max_tensors = 10;
  const auto refused = write(limited, dir / "two.gguf");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
}

// Blocks and keys of a GGUF file stay as they are.
TEST(GgufExport, CopiesAFileToTheBit) {
  for (const char* name : {"llama3_tied_q8_0", "llama3_tied_f16", "smollm3"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    ExportOptions options = options_of(std::string("gguf/") + name + ".gguf", "auto");
    options.model_name = "";
    const Result<packer::WrittenFiles> written = write(options, dir / "copy.gguf");
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(read_all(dir / "copy.gguf"), read_all(options.convert.source));
  }
}

// Tensors are decoded only where another type is requested.
TEST(GgufExport, RequantizesOnlyWhenAsked) {
  const TempDir dir;
  ExportOptions options = options_of("gguf/llama3_tied_q8_0.gguf", "f32");
  ASSERT_TRUE(write(options, dir / "f32.gguf"));
  options.convert.source = dir / "f32.gguf";
  options.type = "q8_0";
  ASSERT_TRUE(write(options, dir / "q8_0.gguf"));
  options.convert.source = testdata("gguf/llama3_tied_q8_0.gguf");
  options.type = "auto";
  ASSERT_TRUE(write(options, dir / "copy.gguf"));
  EXPECT_EQ(read_all(dir / "q8_0.gguf"), read_all(dir / "copy.gguf"));
}

// Blocks of MXFP4 are kept from a checkpoint and from a GGUF file, for every requested type.
TEST(GgufExport, BlocksOfMxfp4StayAsTheyAre) {
  const TempDir dir;
  ExportOptions options = options_of("golden/gpt_oss_mxfp4", "q8_0");
  ASSERT_TRUE(write(options, dir / "q8_0.gguf"));
  options.convert.source = testdata("gguf/families/gpt_oss_mxfp4.gguf");
  ASSERT_TRUE(write(options, dir / "copy.gguf"));
  EXPECT_EQ(read_all(dir / "q8_0.gguf"), read_all(dir / "copy.gguf"));
}

// The file type of GGUF is the same number for f32, f16 and bf16 beside MXFP4.
TEST(GgufExport, FilesWithMxfp4AreProved) {
  const TempDir dir;
  ThreadPool pool(2);
  for (const char* type : {"f32", "bf16", "q8_0"}) {
    SCOPED_TRACE(type);
    const ExportOptions options = options_of("golden/gpt_oss_mxfp4", type);
    const std::string path = dir / (std::string(type) + ".gguf");
    ASSERT_TRUE(write(options, path));
    const auto proof = prove_gguf(path, {.checkpoint = options.convert.source, .config = {}}, pool);
    ASSERT_TRUE(proof) << proof.error().message;
    EXPECT_TRUE(proof->parity());
    EXPECT_EQ(proof->file_type, type);
  }
}

}  // namespace
}  // namespace ferry::conversion::gguf_proof_test
