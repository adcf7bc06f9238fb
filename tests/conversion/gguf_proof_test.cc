// GGUF files, compared to the bit with those of llama.cpp's converter and llama-quantize.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conversion/export.h"
#include "conversion/gguf_proof.h"
#include "conversion/importance_file.h"
#include "core/atomic_file.h"
#include "core/sha256.h"
#include "core/text.h"
#include "core/thread_pool.h"
#include "dialects/gguf/file/gguf.h"
#include "dialects/gguf/file/importance.h"
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

// Files of models with a window that llama.cpp does not apply differ from those of its converter in
// one number: their context ends where the window does. This puts the converter's number there.
std::string with_whole_context(std::string file, const std::string& checkpoint) {
  const auto config = nlohmann::json::parse(read_all(testdata(checkpoint + "/config.json")));
  const auto& text = config.contains("text_config") ? config["text_config"] : config;
  const auto positions = text["max_position_embeddings"].get<uint32_t>();
  const std::string key = ".context_length";
  const size_t value = file.find(key) + key.size() + sizeof(uint32_t);  // behind the type
  for (size_t i = 0; i < sizeof(positions); ++i) {
    file[value + i] = static_cast<char>(positions >> (8 * i) & 0xFFU);
  }
  return file;
}

// The lines of the list are "CHECKPOINT TYPE SHA-256".
TEST(GgufExport, FilesAreThoseOfLlamaCpp) {
  std::ifstream table(testdata("gguf_written/digests.txt"));
  std::string checkpoint, type, digest;
  int count = 0;
  std::set<std::string> windowed;
  const TempDir dir;
  for (; table >> checkpoint >> type >> digest; ++count) {
    SCOPED_TRACE(checkpoint + " " + type);
    const std::string out = dir / (std::to_string(count) + ".gguf");
    const Result<packer::WrittenFiles> written = write(options_of(checkpoint, type), out);
    ASSERT_TRUE(written) << written.error().message;
    ASSERT_EQ(written->files.size(), 1);
    if (to_hex(written->files[0].sha256) == digest) continue;
    const std::string whole = with_whole_context(read_all(out), checkpoint);
    EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(whole)))), digest);
    windowed.insert(checkpoint);
  }
  EXPECT_EQ(windowed,
            (std::set<std::string>{"golden/mistral", "golden/mixtral", "golden/phi3_window",
                                   "golden/qwen2_5_vl", "golden/starcoder2"}));
  EXPECT_EQ(count, 219);
}

// The lines are those of the other list. No digest of a tiny tokenizer is known, so that its
// pre-tokenizer is stated.
TEST(GgufExport, EncodersAreThoseOfLlamaCpp) {
  std::ifstream table(testdata("gguf_written/encoder_digests.txt"));
  std::string checkpoint, type, digest;
  int count = 0;
  const TempDir dir;
  for (; table >> checkpoint >> type >> digest; ++count) {
    SCOPED_TRACE(checkpoint + " " + type);
    ExportOptions options = options_of(checkpoint, type);
    const bool stated =
        checkpoint.starts_with("gguf_written") && checkpoint != "gguf_written/xlm_roberta";
    if (stated) options.pre_tokenizer = "jina-v2-en";
    const Result<packer::WrittenFiles> written =
        write(options, dir / (std::to_string(count) + ".gguf"));
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(to_hex(written->files[0].sha256), digest);
  }
  EXPECT_EQ(count, 54);
}

// The matrices of the file: column c of the i-th of them has the importance ((37 c + 11 i) % 101)^2
// / 16.
formats::ImportanceSums importance_of(const std::string& gguf) {
  formats::ImportanceSums sums;
  const auto file = formats::open_gguf(gguf);
  EXPECT_TRUE(file);
  std::map<std::string, int64_t> columns;
  for (const TensorEntry& entry : file->source->entries()) {
    const bool matrix = entry.shape.size() > 1 && entry.name.ends_with(".weight");
    if (matrix && entry.name.starts_with("blk.")) columns[entry.name] = entry.shape.back();
  }
  int64_t i = 0;
  for (const auto& [name, count] : columns) {
    formats::ImportanceSums::Entry& entry = sums.entries[name];
    entry.counts = {1};
    for (int64_t c = 0; c < count; ++c) {
      const auto root = static_cast<float>((c * 37 + 11 * i) % 101);
      entry.sums.push_back(root * root / 16);
    }
    ++i;
  }
  return sums;
}

// Digests of the files that llama_model_quantize() of llama-cpp-python 0.3.36 makes.
TEST(GgufExport, FilesByImportanceAreThoseOfLlamaCpp) {
  const std::pair<const char*, const char*> kDigests[] = {
      {"q3_k_m", "66d5ac286b72e9412b2580b870bc299208969c6639f8d88a654e0c8020f1cf28"},
      {"q4_0", "bcd3ab52000bcde4df2ca1fc8a9c66a9ef323e60dafe84b0333c26be67d7128b"},
      {"q4_1", "c5e9ba5d7bcf7a399f29a393f1f3b777107bbfbed98a2acb4113a29b92b1bb10"},
      {"q4_k_m", "78c613733fd241181a21fefc582a1f444c78a8540bb27b3efbfc6f8cb86730ea"},
      {"q5_0", "5d7faeb139dcc97a9e5d36f4c4c72971996f1dbce8632cf45b3c784a994a6e4b"},
      {"q5_k_s", "c5d81d1583706d5ca98c160ca8b43a3001f43bb94aff23f690e70f1e70b3cd9b"},
      {"iq4_nl", "a5ada2804510b0eee5d1de0f8a67934c8d07083dda40088d11d59714113c5b69"},
      {"iq4_xs", "f64867e55300d67734f210a3b9a5e6a92ed4c76e021e6fa3349a1a5c73211a42"}};
  const TempDir dir;
  ThreadPool pool(2);
  ExportOptions options = options_of("trained", "f32");
  options.pre_tokenizer = "gpt-2";
  ASSERT_TRUE(write(options, dir / "f32.gguf"));
  const formats::ImportanceSums sums = importance_of(dir / "f32.gguf");
  options.imatrix = dir / "imatrix.gguf";
  ASSERT_TRUE(
      write_atomically(options.imatrix, *formats::importance_gguf(sums), IfExists::kRefuse));
  for (const auto& [type, digest] : kDigests) {
    SCOPED_TRACE(type);
    const std::string out = dir / (std::string(type) + ".gguf");
    options.type = type;
    options.convert.source = testdata("trained");
    options.model_name = "tiny";
    options.pre_tokenizer = "gpt-2";
    const Result<packer::WrittenFiles> written = write(options, out);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(to_hex(written->files[0].sha256), digest);
    // The file of the f32 file is the same, and it is proved with the importance matrix alone.
    options.convert.source = dir / "f32.gguf";
    options.model_name = options.pre_tokenizer = "";
    const Result<packer::WrittenFiles> copied =
        write(options, dir / (type + std::string(".copy.gguf")));
    ASSERT_TRUE(copied) << copied.error().message;
    EXPECT_EQ(copied->files[0].sha256, written->files[0].sha256);
    GgufProofOptions proof = {.checkpoint = testdata("trained"), .config = {}};
    proof.imatrix = options.imatrix;
    const auto with = prove_gguf(out, proof, pool);
    ASSERT_TRUE(with) << with.error().message;
    EXPECT_TRUE(with->parity());
    proof.imatrix.clear();
    const auto without = prove_gguf(out, proof, pool);
    EXPECT_TRUE(without && !without->parity());
  }
}

TEST(GgufExport, AnImportanceMatrixThatDoesNotFitIsRefused) {
  const TempDir dir;
  ExportOptions options = options_of("golden/llama", "q4_0");
  options.imatrix = dir / "imatrix.dat";
  const auto refused_with = [&](formats::ImportanceSums sums) {
    EXPECT_TRUE(
        write_atomically(options.imatrix, formats::importance_records(sums), IfExists::kReplace));
    const auto written = write(options, dir / "x.gguf");
    EXPECT_FALSE(written);
    return written ? std::string() : written.error().message;
  };
  formats::ImportanceSums other, narrow;
  other.entries["blk.99.attn_q.weight"] = {{1, 2}, {1}};
  EXPECT_NE(refused_with(other).find("has no entry of a tensor of the file"), std::string::npos);
  narrow.entries["blk.0.attn_q.weight"] = {{1, 2}, {1}};
  EXPECT_NE(refused_with(narrow).find("'blk.0.attn_q.weight' has 2 numbers"), std::string::npos);
  options.type = "q8_0";
  EXPECT_NE(refused_with(other).find("changes nothing in files of type q8_0"), std::string::npos);
  options.type = "q2_k_s";
  options.imatrix.clear();
  options.convert.source = testdata("golden/llama");
  const auto needed = write(options, dir / "x.gguf");
  // The rows of this model are too short for q2_k, so no tensor needs a matrix.
  EXPECT_TRUE(needed);
}

// The sums are those of transformers 5.23 (hooks before linear layers and experts).
TEST(ImportanceFile, SumsAreThoseOfTransformers) {
  const auto golden = nlohmann::json::parse(read_all(testdata("gguf_written/input_squares.json")));
  const TempDir dir;
  ThreadPool pool(2);
  for (const auto& [checkpoint, of] : golden.items()) {
    SCOPED_TRACE(checkpoint);
    std::string ids;
    for (const auto& sequence : of["sequences"]) {
      for (const auto& id : sequence) ids += std::to_string(id.get<int>()) + " ";
      ids += "\n";
    }
    ASSERT_TRUE(write_atomically(dir / "ids.txt", ids, IfExists::kReplace));
    ImportanceOptions options;
    options.convert.source = testdata(checkpoint);
    options.text = dir / "ids.txt";
    const auto made = make_importance_file(options, pool);
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->tokens, 72);
    ASSERT_TRUE(write_atomically(dir / "imatrix.gguf", made->bytes, IfExists::kReplace));
    const auto matrix = formats::read_importance_matrix(dir / "imatrix.gguf");
    ASSERT_TRUE(matrix) << matrix.error().message;
    for (const auto& [name, entry] : of["entries"].items()) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(matrix->contains(name));
      const std::vector<float>& means = *matrix->at(name);
      const auto& sums = entry["sums"];
      ASSERT_EQ(means.size(), sums.size());
      const size_t columns = sums.size() / entry["counts"].size();
      double scale = 0;
      for (const float mean : means)
        scale += static_cast<double>(mean) / static_cast<double>(means.size());
      for (size_t i = 0; i < means.size(); ++i) {
        const auto count = entry["counts"][i / columns].get<double>();
        const double mean = count > 0 ? sums[i].get<double>() / count : 1;
        EXPECT_NEAR(static_cast<double>(means[i]), mean, 1e-4 * scale);
      }
    }
  }
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
