#include "packer/bundle_plan.h"
#include "packer/bundle_reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "core/sha256.h"
#include "packer/staging_directory.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer::bundle_plan_test {
namespace {

using Names = std::vector<std::string>;

const ManifestTensor& tensor_of(const Manifest& manifest, const std::string& name) {
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return manifest.tensors.front();
}

std::string stored_bytes(const std::string& bundle, const ManifestTensor& tensor) {
  return read_file(bundle + "/" + tensor.file).substr(tensor.offset, tensor.bytes);
}

TEST(BundleWriter, FilesAreWhatThePlanSaid) {
  const TempDir dir;
  TinyModel model;
  write_file(dir / "tok.json", "{}");
  write_file(dir / "empty.txt", "");
  model.copied = {copied_file("tokenizer.json", dir / "tok.json"),
                  copied_file("empty.txt", dir / "empty.txt"),
                  {.name = "made.json", .text = "{\"made\": true}\n"}};
  const auto plan = BundlePlan::make(model.input(), model.source, 0);
  ASSERT_TRUE(plan) << plan.error().message;
  ThreadPool pool(2);
  uint64_t last = 0, total = 0;
  const auto manifest = plan->write(dir / "out", false, pool, [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  });
  ASSERT_TRUE(manifest) << manifest.error().message;
  const auto files = read_directory(dir / "out");
  ASSERT_EQ(files.size(), plan->files().size());
  uint64_t sum = 0;
  for (const PlannedFile& planned : plan->files()) {
    ASSERT_TRUE(files.contains(planned.path)) << planned.path;
    EXPECT_EQ(files.at(planned.path).size(), planned.bytes) << planned.path;
    sum += planned.bytes;
  }
  EXPECT_EQ(plan->total_bytes(), sum);
  EXPECT_EQ(last, total);
  EXPECT_LT(total, sum - files.at("manifest.json").size());  // the digests do not cover padding
  EXPECT_EQ(files.at("tokenizer.json"), "{}");
  EXPECT_EQ(files.at("made.json"), "{\"made\": true}\n");
  EXPECT_TRUE(check_bundle(dir / "out", pool).value().ok());
}

TEST(BundleWriter, NamesAreThoseOfTheFormat) {
  const TempDir dir;
  write_tiny_bundle(TinyModel(), dir / "out");
  EXPECT_EQ(names_in(dir / "out"),
            (Names{"decoder-00001-of-00002.ptd", "decoder-00001-of-00002.pte",
                   "decoder-00002-of-00002.ptd", "decoder-00002-of-00002.pte", "manifest.json"}));
  EXPECT_EQ(names_in(dir.path()), (Names{"out"}));
}

std::string u64_bytes(uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

std::string raw_digest(const std::string& bytes) {
  const Digest digest = sha256(std::as_bytes(std::span<const char>(bytes)));
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// Computes the digest as docs/bundle_format.md defines it.
std::string documented_digest(const Manifest& manifest, const ManifestFile& file,
                              const std::string& bytes) {
  if (!file.path.ends_with(".ptd")) return hex_digest(bytes);
  std::string text = "ferry-segments-v1\n" + u64_bytes(bytes.size());
  size_t done = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    // Tied weights are a second key of the same place.
    if (tensor.file != file.path || tensor.offset < done) continue;
    text += bytes.substr(done, tensor.offset - done);
    text += raw_digest(bytes.substr(tensor.offset, tensor.bytes));
    done = tensor.offset + tensor.bytes;
  }
  return hex_digest(text + bytes.substr(done));
}

TEST(BundleWriter, FileDigestsAreThoseOfTheBytes) {
  const TempDir dir;
  const Manifest manifest = write_tiny_bundle(TinyModel(), dir / "out");
  ASSERT_EQ(manifest.files.size(), 4u);
  for (const ManifestFile& file : manifest.files) {
    EXPECT_EQ(documented_digest(manifest, file, read_file(dir / "out/" + file.path)), file.digest)
        << file.path;
  }
}

TEST(BundleWriter, BytesDoNotDependOnThreads) {
  const TempDir dir;
  write_tiny_bundle(TinyModel(), dir / "one", 1);
  for (size_t threads : {2, 8}) {
    const std::string name = dir / std::to_string(threads);
    write_tiny_bundle(TinyModel(), name, threads);
    EXPECT_EQ(read_directory(name), read_directory(dir / "one"));
  }
}

TEST(BundleWriter, WeightsAreTheirExpressions) {
  const TempDir dir;
  const TinyModel model;
  const Manifest manifest = write_tiny_bundle(model, dir / "out");
  const auto stored = [&](const std::string& name) {
    return stored_bytes(dir / "out", tensor_of(manifest, name));
  };
  EXPECT_EQ(stored("tok.weight"), model.source.bytes_of(0));
  const std::string& q = model.source.bytes_of(3);
  EXPECT_EQ(stored("q.weight"), q.substr(32) + q.substr(0, 32));
  EXPECT_EQ(stored("ffn.weight"), model.source.bytes_of(4) + model.source.bytes_of(5));
  // The bytes of a bf16 are the upper half of those of an f32.
  const std::string& norm = model.source.bytes_of(1);
  std::string widened;
  for (size_t i = 0; i < norm.size(); i += 2) widened += std::string(2, '\0') + norm.substr(i, 2);
  EXPECT_EQ(stored("norm.weight"), widened);
}

TEST(BundleWriter, TensorsCarryTheDigestsOfBothSides) {
  const TempDir dir;
  const TinyModel model;
  const Manifest manifest = write_tiny_bundle(model, dir / "out");
  ASSERT_EQ(manifest.tensors.size(), 5u);
  for (const ManifestTensor& tensor : manifest.tensors) {
    EXPECT_EQ(hex_digest(stored_bytes(dir / "out", tensor)), tensor.sha256) << tensor.name;
    for (const ManifestTensor::Source& source : tensor.sources) {
      for (size_t i = 0; i < model.source.entries().size(); ++i) {
        if (model.source.entries()[i].name != source.key) continue;
        EXPECT_EQ(hex_digest(model.source.bytes_of(i)), source.sha256) << source.key;
      }
    }
  }
  const ManifestTensor& ffn = tensor_of(manifest, "ffn.weight");
  ASSERT_EQ(ffn.sources.size(), 2u);
  EXPECT_EQ(ffn.sources[0].key, "model.gate");
  EXPECT_EQ(ffn.sources[1].key, "model.up");
  EXPECT_EQ(ffn.sources[1].file, "model-1.safetensors");
  EXPECT_EQ(ffn.rule, "stack");
}

TEST(BundleWriter, TiedWeightsShareBytesAcrossShards) {
  const TempDir dir;
  const Manifest manifest = write_tiny_bundle(TinyModel(), dir / "out");
  const ManifestTensor& tok = tensor_of(manifest, "tok.weight");
  const ManifestTensor& out = tensor_of(manifest, "output.weight");
  EXPECT_EQ(out.file, "decoder-00001-of-00002.ptd");
  EXPECT_EQ(out.offset, tok.offset);
  EXPECT_EQ(out.file, tok.file);
  EXPECT_EQ(manifest.components[0].programs[0].data_files, (Names{"decoder-00001-of-00002.ptd"}));
  EXPECT_EQ(manifest.components[0].programs[1].data_files,
            (Names{"decoder-00001-of-00002.ptd", "decoder-00002-of-00002.ptd"}));
}

TEST(BundleWriter, DroppedTensorsAreNeverRead) {
  const TempDir dir;
  const TinyModel model;
  write_tiny_bundle(model, dir / "out");
  EXPECT_EQ(model.source.reads_of(2), 0u);
  EXPECT_EQ(model.source.reads_of(0), 1u);
}

TEST(BundleWriter, SourceFileDigestIsTheDocumentedTree) {
  const TempDir dir;
  const TinyModel model;
  const Manifest manifest = write_tiny_bundle(model, dir / "out");
  ASSERT_EQ(manifest.source_files.size(), 2u);
  for (uint32_t f = 0; f < 2; ++f) {
    const SourceFile& file = model.source.files()[f];
    std::string text = "ferry-source-file-v1\n" + u64_bytes(file.bytes) +
                       u64_bytes(file.header.size()) + "header " + std::to_string(f);
    for (size_t i = 0; i < model.source.entries().size(); ++i) {
      const TensorEntry& entry = model.source.entries()[i];
      if (entry.file != f) continue;
      text += u64_bytes(entry.offset) + u64_bytes(entry.bytes);
      if (entry.name == "vision.patch") {
        text += '\0';
      } else {
        text += '\1' + raw_digest(model.source.bytes_of(i));
      }
    }
    EXPECT_EQ(manifest.source_files[f].sha256_tree, hex_digest(text)) << file.name;
  }
}

TEST(BundleWriter, SizeLimitSplitsWeightFiles) {
  const TempDir dir;
  const TinyModel model;
  const auto whole = BundlePlan::make(model.input(), model.source, 0);
  ASSERT_TRUE(whole);
  const uint64_t limit = whole->files()[1].bytes - 1;
  const Manifest manifest = write_tiny_bundle(model, dir / "out", 2, limit);
  const std::string stem = "decoder-00001-of-00002.part-00";
  EXPECT_EQ(manifest.components[0].programs[0].data_files,
            (Names{stem + "1-of-002.ptd", stem + "2-of-002.ptd"}));
  EXPECT_EQ(manifest.components[0].programs[1].data_files,
            (Names{stem + "1-of-002.ptd", "decoder-00002-of-00002.ptd"}));
  for (const ManifestFile& file : manifest.files) {
    if (file.path.ends_with(".ptd")) {
      EXPECT_LE(file.bytes, limit) << file.path;
    }
  }
  ThreadPool pool(2);
  const auto bundle = Bundle::open(dir / "out", true, pool);
  EXPECT_TRUE(bundle) << bundle.error().message;
}

// There are more files than may be open at once, and the weights are rows of one source tensor.
TEST(BundleWriter, ManyFilesOfOneWeightEach) {
  const TempDir dir;
  TinyModel model;
  const size_t rows = model.source.add("rows", DType::kF32, {70, 4}, 1);
  std::vector<std::string> names;
  for (int64_t i = 0; i < 70; ++i) {
    names.push_back("row." + std::to_string(i));
    graph::Recipe row = graph::whole_tensor(model.source, rows);
    row.pieces = {run_piece(rows, 4 * i, 4)};
    row.output().shape = {4};
    ASSERT_TRUE(model.weights.add({names.back(), row, "split"}));
  }
  BundleInput input = model.one_shard();
  input.components[0].parts[0].lowered = std::make_shared<graph::LoweredProgram>(
      tiny_program(model.weights, names, "tokens", "logits"));
  const auto plan = BundlePlan::make(std::move(input), model.source, 400);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->files()[1].path, "decoder-00001-of-00001.part-001-of-070.ptd");
  ThreadPool pool(3);
  const auto manifest = plan->write(dir / "out", false, pool, {});
  ASSERT_TRUE(manifest) << manifest.error().message;
  const std::string& bytes = model.source.bytes_of(rows);
  for (size_t i = 0; i < 70; ++i) {
    const ManifestTensor& tensor = manifest->manifest.tensors[i];
    EXPECT_EQ(stored_bytes(dir / "out", tensor), bytes.substr(16 * i, 16)) << i;
    EXPECT_EQ(tensor.sources[0].sha256, hex_digest(bytes)) << i;
  }
  EXPECT_TRUE(Bundle::open(dir / "out", true, pool));
}

TEST(BundleWriter, TensorThatFitsNoFileIsNamed) {
  const TinyModel model;
  const auto plan = BundlePlan::make(model.input(), model.source, 300);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  EXPECT_NE(plan.error().message.find("'tok.weight'"), std::string::npos) << plan.error().message;
}

TEST(BundleWriter, WeightOfOtherShapeThanTheProgramIsADefect) {
  TinyModel model;
  BundleInput input = model.input();
  for (pte::Value& value : input.components[0].parts[0].lowered->program.methods[0].values) {
    auto* tensor = std::get_if<pte::Tensor>(&value);
    if (tensor && tensor->fqn == "q.weight") tensor->sizes = {2, 8};
  }
  const auto plan = BundlePlan::make(std::move(input), model.source, 0);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::kInternal);
  ASSERT_EQ(plan.error().details.size(), 1u);
  EXPECT_NE(plan.error().details[0].find("'q.weight'"), std::string::npos);
}

TEST(BundleWriter, CopiedFileMayNotTakeAnotherName) {
  const TempDir dir;
  TinyModel model;
  write_file(dir / "x", "x");
  for (const char* name : {"manifest.json", "decoder-00001-of-00002.pte"}) {
    model.copied = {copied_file(name, dir / "x")};
    const auto plan = BundlePlan::make(model.input(), model.source, 0);
    ASSERT_FALSE(plan) << name;
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  }
}

// -- all or nothing

// The weights have odd sizes, several tiles, and every kind of recipe.
TEST(BundleWriter, LargeTensorsAreTheSameForAnyNumberOfThreads) {
  const TempDir dir;
  TinyModel model;
  const size_t big = model.source.add("big", DType::kBF16, {1000, 1501}, 1);
  const size_t half = model.source.add("half", DType::kF32, {900, 777}, 1);
  const size_t copied = model.source.add("copied", DType::kF32, {700, 1111}, 1);
  graph::StateDict& weights = model.weights;
  graph::Recipe cast = graph::whole_tensor(model.source, big);
  cast.cast(DType::kF32);
  ASSERT_TRUE(weights.add({"cast", cast, "rule"}));
  constexpr int64_t kHalf = 450 * 777;
  graph::Recipe swap = graph::whole_tensor(model.source, half);
  swap.pieces = {run_piece(half, kHalf, kHalf), run_piece(half, 0, kHalf)};
  ASSERT_TRUE(weights.add({"swapped", swap, "rule"}));
  graph::Recipe turn = graph::whole_tensor(model.source, half);
  turn.pieces = {{.tensor = half, .axes = {{777, 1}, {900, 777}}}};
  turn.output().shape = {777, 900};
  ASSERT_TRUE(weights.add({"turned", turn, "rule"}));
  ASSERT_TRUE(weights.add({"copied", graph::whole_tensor(model.source, copied), "rule"}));
  BundleInput input = model.one_shard();
  input.components[0].parts[0].lowered = std::make_shared<graph::LoweredProgram>(
      tiny_program(weights, {"tok.weight", "cast", "swapped", "turned", "copied", "norm.weight"},
                   "tokens", "y"));
  const auto plan = BundlePlan::make(std::move(input), model.source, 0);
  ASSERT_TRUE(plan) << plan.error().message;
  for (size_t threads : {1, 3}) {
    ThreadPool pool(threads);
    const std::string out = dir / std::to_string(threads);
    const auto manifest = plan->write(out, false, pool, {});
    ASSERT_TRUE(manifest) << manifest.error().message;
    EXPECT_EQ(read_directory(out), read_directory(dir / "1"));
    for (const ManifestFile& file : manifest->manifest.files) {
      EXPECT_EQ(documented_digest(manifest->manifest, file, read_file(out + "/" + file.path)),
                file.digest);
    }
    const std::string& bytes = model.source.bytes_of(half);
    const size_t middle = bytes.size() / 2;
    const ManifestTensor& swapped = tensor_of(manifest->manifest, "swapped");
    EXPECT_EQ(stored_bytes(out, swapped), bytes.substr(middle) + bytes.substr(0, middle));
    EXPECT_EQ(swapped.sources[0].sha256, hex_digest(bytes));
    const std::string turned = stored_bytes(out, tensor_of(manifest->manifest, "turned"));
    for (const size_t at : {size_t{0}, size_t{1}, size_t{900}, size_t{350001}, size_t{699299}}) {
      EXPECT_EQ(turned.substr(4 * at, 4), bytes.substr(4 * (at % 900 * 777 + at / 900), 4)) << at;
    }
    EXPECT_EQ(tensor_of(manifest->manifest, "turned").sources[0].sha256, hex_digest(bytes));
    EXPECT_EQ(tensor_of(manifest->manifest, "cast").sources[0].sha256,
              hex_digest(model.source.bytes_of(big)));
    EXPECT_EQ(tensor_of(manifest->manifest, "copied").sha256,
              hex_digest(model.source.bytes_of(copied)));
  }
}

}  // namespace
}  // namespace ferry::packer::bundle_plan_test
