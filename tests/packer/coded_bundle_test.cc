// Bundles whose weights are codes and scales: where both are, and that they are what their recipes
// make, whatever the number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "packer/check.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer {
namespace {

constexpr graph::QuantizationScheme kDelegated = {
    .bits = 4, .group = 32, .scale_dtype = DType::kBF16};
constexpr graph::QuantizationScheme kTable = {
    .bits = 4, .group = 32, .order = graph::NibbleOrder::kHighFirst};
constexpr graph::QuantizationScheme kBytes = {.bits = 8};

// A decoder of one program: an i8 embedding whose bytes are also the head's, a second table in 4
// bits, and two matrices that delegates read, one of several tiles.
struct CodedModel {
  CodedModel() {
    add("tok.weight", source.add("model.tok", DType::kF32, {40, 64}), kBytes);
    add("output.weight", 0, kBytes);
    add("table.weight", source.add("model.table", DType::kBF16, {6, 64}), kTable);
    add("q.weight", source.add("model.q", DType::kF32, {4, 64}), kDelegated);
    add("up.weight", source.add("model.up", DType::kBF16, {2300, 512}), kBytes);
    const size_t norm = source.add("model.norm", DType::kF32, {4});
    EXPECT_TRUE(weights.add({"norm.weight", graph::whole_tensor(source, norm), "norm"}));
  }

  void add(const std::string& name, size_t entry, const graph::QuantizationScheme& scheme) {
    graph::Recipe recipe = graph::whole_tensor(source, entry);
    EXPECT_TRUE(recipe.quantize(scheme, name));
    EXPECT_TRUE(weights.add({name, std::move(recipe), "rule"}));
  }

  BundleInput input() const {
    BundleInput whole = TinyModel().one_shard();
    whole.components[0].quantization = "8da4w-g32";
    BundleInput::Part& part = whole.components[0].parts[0];
    part.lowered = tiny_program(
        weights,
        {"norm.weight", "tok.weight", "tok.weight.scales", "table.weight", "table.weight.scales"},
        "tokens", "logits");
    part.lowered.named = {"q.weight",  "q.weight.scales", "output.weight", "output.weight.scales",
                          "up.weight", "up.weight.scales"};
    part.weights = &weights;
    return whole;
  }

  Result<WrittenBundle> write(const std::string& directory, size_t threads = 1) const {
    const auto plan = BundlePlan::make(input(), source, 0);
    if (!plan) return tl::unexpected<Error>(plan.error());
    ThreadPool pool(threads);
    return plan->write(directory, false, pool, {});
  }

  MemorySource source;
  graph::StateDict weights;
};

const ManifestTensor& named(const Manifest& manifest, const std::string& name) {
  return *std::ranges::find(manifest.tensors, name, &ManifestTensor::name);
}

class CodedBundle : public testing::Test {
 protected:
  void SetUp() override {
    auto written = model.write(path);
    ASSERT_TRUE(written) << written.error().message
                         << (written.error().details.empty() ? "" : written.error().details[0]);
    manifest = std::move(written->manifest);
  }
  void publish(const Manifest& changed) {
    write_file(path + "/manifest.json", write_manifest(changed));
  }
  std::string refusal(bool digests) {
    const auto bundle = Bundle::open(path, digests, pool);
    if (bundle) return "";
    std::string all = bundle.error().message;
    for (const std::string& detail : bundle.error().details) all += "\n" + detail;
    return all;
  }

  TempDir dir;
  std::string path = dir / "out";
  CodedModel model;
  Manifest manifest;
  ThreadPool pool{1};
};

TEST_F(CodedBundle, HoldsWhatTheRecipesMake) {
  const auto bundle = Bundle::open(path, true, pool);
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ(manifest.components[0].quantization, "8da4w-g32");
  ASSERT_EQ(manifest.tensors.size(), 11U);
  for (const ManifestTensor& tensor : manifest.tensors) {
    const auto [weight, output] = model.weights.find_output(tensor.name);
    const graph::RecipeOutput& made = weight->recipe.outputs[output];
    EXPECT_EQ(tensor.output, made.name);
    EXPECT_EQ(tensor.dtype, made.dtype);
    EXPECT_EQ(tensor.shape, made.shape);
    EXPECT_EQ(tensor.rounded, tensor.name != "norm.weight");
    EXPECT_EQ(tensor.recipe, graph::text_of(weight->recipe, model.source));
    std::string bytes(made.bytes(), '\0');
    ASSERT_TRUE(graph::materialize(weight->recipe, model.source, output, 0,
                                   std::as_writable_bytes(std::span<char>(bytes))));
    EXPECT_TRUE(read_file(path + "/" + tensor.file).substr(tensor.offset, tensor.bytes) == bytes)
        << tensor.name;
    EXPECT_EQ(tensor.sha256, hex_digest(bytes));
    EXPECT_EQ(tensor.sources[0].sha256,
              hex_digest(model.source.bytes_of(weight->recipe.pieces[0].tensor)));
  }
}

TEST_F(CodedBundle, ScalesFollowTheirCodes) {
  for (const std::string name : {"tok.weight", "table.weight", "q.weight", "up.weight"}) {
    const ManifestTensor& codes = named(manifest, name);
    const ManifestTensor& scales = named(manifest, name + ".scales");
    EXPECT_EQ(scales.offset, (codes.offset + codes.bytes + 127) / 128 * 128) << name;
  }
}

TEST_F(CodedBundle, OnlyTensorsOfProgramsHaveALayout) {
  const auto bundle = Bundle::open(path, false, pool);
  ASSERT_TRUE(bundle);
  std::map<std::string, ptd::NamedTensor> entries;
  for (const auto& tensor : bundle->data().begin()->second.content.tensors) {
    entries.emplace(tensor.key, tensor);
  }
  for (const std::string name : {"q.weight", "up.weight", "output.weight"}) {
    EXPECT_FALSE(entries.at(name).is_tensor) << name;
    EXPECT_FALSE(entries.at(name + ".scales").is_tensor) << name;
  }
  EXPECT_TRUE(entries.at("table.weight").is_tensor);
  EXPECT_EQ(entries.at("table.weight").dtype, DType::kU8);
  EXPECT_EQ(entries.at("table.weight").sizes, (std::vector<int32_t>{6, 32}));
  EXPECT_EQ(entries.at("table.weight.scales").dtype, DType::kF32);
  EXPECT_EQ(entries.at("table.weight.scales").sizes, (std::vector<int32_t>{6, 2}));
  EXPECT_EQ(entries.at("tok.weight").dtype, DType::kI8);
  EXPECT_EQ(entries.at("tok.weight").segment, entries.at("output.weight").segment);
  EXPECT_EQ(entries.at("tok.weight.scales").segment, entries.at("output.weight.scales").segment);
  EXPECT_EQ(named(manifest, "tok.weight").offset, named(manifest, "output.weight").offset);
}

TEST_F(CodedBundle, BytesDoNotDependOnThreads) {
  const auto one = read_directory(path);
  for (const size_t threads : {2, 5}) {
    const std::string other = dir / std::to_string(threads);
    ASSERT_TRUE(model.write(other, threads));
    EXPECT_TRUE(read_directory(other) == one) << threads;
  }
}

TEST_F(CodedBundle, TheSourceIsReadOnceForBothOutputs) {
  // 16 Ki values at a time, in groups of 128 rows and tiles of 2048; a second pass would double it.
  EXPECT_LE(model.source.reads_of(3), 2300U * 512 / 16384 + 2);
}

TEST_F(CodedBundle, DamagedCodesAndScalesAreNamed) {
  for (const std::string name : {"up.weight", "up.weight.scales", "tok.weight.scales"}) {
    const ManifestTensor& tensor = named(manifest, name);
    const std::string file = path + "/" + tensor.file;
    const std::string good = read_file(file);
    std::string bad = good;
    bad[tensor.offset + tensor.bytes - 1] ^= 4;
    write_file(file, bad);
    EXPECT_NE(refusal(true).find("(tensor '" + name + "', offset "), std::string::npos)
        << refusal(true);
    EXPECT_EQ(refusal(false), "");
    write_file(file, good);
  }
}

struct Lie {
  const char* name;
  void (*tell)(ManifestTensor&);
  const char* message;
};

const Lie kLies[] = {
    {"q.weight", [](ManifestTensor& t) { t.dtype = DType::kI8; },
     "tensor 'q.weight' is i8 [4, 64] and has 128 bytes"},
    {"q.weight", [](ManifestTensor& t) { t.shape = {256}; },
     "tensor 'q.weight.scales' is not the scales of a tensor of codes"},
    {"q.weight",
     [](ManifestTensor& t) {
       t.shape = {2, 128};
     },
     "tensor 'q.weight.scales' is not the scales of a tensor of codes"},
    {"q.weight",
     [](ManifestTensor& t) {
       t.shape = {256, 1};
     },
     "tensor 'q.weight' is i4 [256, 1] and has 128 bytes"},
    {"q.weight.scales", [](ManifestTensor& t) { t.dtype = DType::kF32; },
     "tensor 'q.weight.scales' is f32 [4, 2] and has 16 bytes"},
    {"q.weight.scales", [](ManifestTensor& t) { t.shape = {8}; },
     "tensor 'q.weight.scales' is not the scales of a tensor of codes"},
    {"q.weight.scales", [](ManifestTensor& t) { t.name = "other.scales"; },
     "holds tensor 'q.weight.scales' where the manifest has 'other.scales'"},
    {"up.weight.scales", [](ManifestTensor& t) { t.name = "q.weight.scales"; },
     "tensor 'q.weight.scales' is listed twice"},
    {"table.weight", [](ManifestTensor& t) { t.dtype = DType::kU8; },
     "tensor 'table.weight.scales' is not the scales of a tensor of codes"},
    {"table.weight",
     [](ManifestTensor& t) {
       t.shape = {12, 32};
     },
     "tensor 'table.weight' is u8 [6, 32], the manifest states i4 [12, 32]"},
    {"tok.weight.scales",
     [](ManifestTensor& t) {
       t.shape = {40, 1};
     },
     "tensor 'tok.weight.scales' is f32 [40], the manifest states f32 [40, 1]"},
};

TEST_F(CodedBundle, ManifestsThatContradictTheFilesAreRefused) {
  for (const Lie& lie : kLies) {
    Manifest changed = manifest;
    lie.tell(*std::ranges::find(changed.tensors, lie.name, &ManifestTensor::name));
    publish(changed);
    EXPECT_NE(refusal(false).find(lie.message), std::string::npos)
        << lie.message << " in " << refusal(false);
  }
  publish(manifest);
  EXPECT_EQ(refusal(true), "");
}

TEST(CodedBundles, DataOfADelegateIsNoTensor) {
  const TempDir dir;
  CodedModel model;
  BundleInput input = model.input();
  auto& lowered = input.components[0].parts[0].lowered;
  std::erase(lowered.weights, "table.weight");
  lowered.named.push_back("table.weight");
  const auto plan = BundlePlan::make(std::move(input), model.source, 0);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().details[0].find("tensor 'table.weight' is data of a delegate"),
            std::string::npos)
      << plan.error().details[0];
}

TEST(CodedBundles, ValuesThatAreNotFiniteMakeNoBundle) {
  const TempDir dir;
  CodedModel model;
  const float infinity = std::numeric_limits<float>::infinity();
  {
    const std::string name = "model.q";
    MemorySource source;
    graph::StateDict weights;
    const size_t entry = source.add(name, DType::kF32, {4, 64});
    source.set(entry, 70, infinity);
    source.set(entry, 3, std::numeric_limits<float>::quiet_NaN());
    graph::Recipe recipe = graph::whole_tensor(source, entry);
    ASSERT_TRUE(recipe.quantize(kDelegated, "q.weight"));
    ASSERT_TRUE(weights.add({"q.weight", recipe, "rule"}));
    BundleInput input = model.input();
    BundleInput::Part& part = input.components[0].parts[0];
    part.lowered = tiny_program(weights, {}, "tokens", "logits");
    part.lowered.named = {"q.weight", "q.weight.scales"};
    part.weights = &weights;
    const auto plan = BundlePlan::make(std::move(input), source, 0);
    ASSERT_TRUE(plan) << plan.error().message;
    ThreadPool pool(2);
    const auto written = plan->write(dir / "out", false, pool, {});
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(written.error().message,
              "checkpoint: NaN and infinity cannot be quantised: 2 values (tensor '" + name + "')");
    EXPECT_TRUE(names_in(dir.path()).empty());
  }
}

}  // namespace
}  // namespace ferry::packer
