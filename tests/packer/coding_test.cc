// Bundles with coded weights: the places of codes and scales, and that they equal the results of
// their recipes for any number of threads.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "formats/xnnpack/graph.h"
#include "formats/xnnpack/writer.h"
#include "packer/bundle_reader.h"
#include "packer/loose_examination.h"
#include "tests/packer/tiny_bundle.h"

namespace ferry::packer::coding_test {
namespace {

constexpr graph::QuantizationScheme kDelegated = {
    .bits = 4, .group = 32, .scale_dtype = DType::kBF16};
constexpr graph::QuantizationScheme kTable = {
    .bits = 4, .group = 32, .order = graph::NibbleOrder::kHighFirst};
constexpr graph::QuantizationScheme kBytes = {.bits = 8};

// A decoder of one program. It has an i8 embedding whose bytes the head uses too, a second table in
// 4 bits, and two matrices that delegates read. One matrix has several tiles.
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
    part.lowered = std::make_shared<graph::LoweredProgram>(tiny_program(
        weights,
        {"norm.weight", "tok.weight", "tok.weight.scales", "table.weight", "table.weight.scales"},
        "tokens", "logits"));
    part.lowered->named = {"q.weight",  "q.weight.scales", "output.weight", "output.weight.scales",
                           "up.weight", "up.weight.scales"};
    part.weights = &weights;
    return whole;
  }

  Result<WrittenBundle> write(const std::string& directory, size_t threads = 1) const {
    const auto plan = BundlePlan::make(input(), source, 0);
    if (!plan) return Failure(plan.error());
    ThreadPool pool(threads);
    return plan->write(directory, false, pool, {});
  }

  MemorySource source;
  graph::StateDict weights;
};

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
    const ManifestTensor& codes = tensor_named(manifest, name);
    const ManifestTensor& scales = tensor_named(manifest, name + ".scales");
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
  EXPECT_EQ(tensor_named(manifest, "tok.weight").offset,
            tensor_named(manifest, "output.weight").offset);
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
  // The source is read 16 Ki values at a time, in groups of 128 rows and tiles of 2048. A second
  // pass would double the number of reads.
  EXPECT_LE(model.source.reads_of(3), 2300U * 512 / 16384 + 2);
}

TEST_F(CodedBundle, DamagedCodesAndScalesAreNamed) {
  for (const std::string name : {"up.weight", "up.weight.scales", "tok.weight.scales"}) {
    const ManifestTensor& tensor = tensor_named(manifest, name);
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

struct CodedLie {
  const char* name;
  void (*tell)(ManifestTensor&);
  const char* message;
};

const CodedLie kCodedLies[] = {
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
  for (const CodedLie& lie : kCodedLies) {
    Manifest changed = manifest;
    lie.tell(tensor_named(changed, lie.name));
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
  auto& lowered = *input.components[0].parts[0].lowered;
  std::erase(lowered.weights, "table.weight");
  lowered.named.push_back("table.weight");
  const auto plan = BundlePlan::make(std::move(input), model.source, 0);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().details[0].find("tensor 'table.weight' is data of a delegate"),
            std::string::npos)
      << plan.error().details[0];
}

// Makes a linear layer whose codes and scales have these keys.
xnnpack::Graph linear_graph(const std::string& codes, const std::string& scales) {
  using xnnpack::Value;
  Value in{.id = 0, .dims = {1, 64}, .external = 0, .is_input = true};
  Value rows{.id = 1, .datatype = xnnpack::Datatype::kQDInt8, .dims = {1, 64}};
  rows.quantization = xnnpack::PerToken{1};
  Value filter{.id = 2, .datatype = xnnpack::Datatype::kQBInt4, .dims = {4, 64}, .constant = 1};
  filter.quantization = xnnpack::PerChannelGroup{0, 32, 2, 8};
  Value out{.id = 3, .dims = {1, 4}, .external = 1, .is_output = true};
  xnnpack::Graph graph;
  graph.values = {in, rows, filter, out};
  graph.nodes = {{xnnpack::NodeKind::kConvert, {0}, {1}},
                 {xnnpack::NodeKind::kFullyConnected, {1, 2, xnnpack::kNone}, {3}}};
  graph.num_externals = 2;
  graph.constants = {{}, {codes, 0, 128}, {scales, 0, 16}};
  return graph;
}

// Adds that layer to the program of a CodedModel, or to one without tensors.
BundleInput with_delegate(const CodedModel& model, const xnnpack::Graph& graph, bool tensors) {
  BundleInput input = model.input();
  graph::LoweredProgram& lowered = *input.components[0].parts[0].lowered;
  if (!tensors) {
    const std::vector<std::string> named = lowered.named;
    lowered = tiny_program(model.weights, {}, "tokens", "logits");
    lowered.named = named;
  }
  pte::Method& method = lowered.program.methods[0];
  constexpr int32_t kScratch = 5;  // f32 [1, 64]
  pte::Tensor result = std::get<pte::Tensor>(method.values[0]);
  result.allocation = pte::Allocation{1, 272};
  method.values.emplace_back(result);
  method.memory_bytes[1] = 288;
  method.delegates = {{std::string(xnnpack::kBackend), 0}};
  method.instructions.push_back(
      pte::DelegateCall{0, {kScratch, static_cast<int32_t>(method.values.size()) - 1}});
  lowered.delegates = {xnnpack::write_blob(graph).value()};
  lowered.sizes.delegates = {lowered.delegates[0].size()};
  return input;
}

std::string write_with_delegate(const std::string& directory, const xnnpack::Graph& graph,
                                bool tensors = true) {
  const CodedModel model;
  const auto plan = BundlePlan::make(with_delegate(model, graph, tensors), model.source, 0);
  if (!plan) return plan.error().message + plan.error().details[0];
  ThreadPool pool(1);
  if (const auto written = plan->write(directory, false, pool, {}); !written) {
    return written.error().message;
  }
  const auto bundle = Bundle::open(directory, true, pool);
  if (!bundle) return bundle.error().message;
  EXPECT_EQ(bundle->manifest().programs()[0]->backends,
            (std::vector<std::string>{"XnnpackBackend"}));
  return "";
}

TEST(CodedBundles, DelegatesFindTheirConstants) {
  const TempDir dir;
  EXPECT_EQ(write_with_delegate(dir / "a", linear_graph("q.weight", "q.weight.scales")), "");
  const std::string program = "/decoder-00001-of-00001.pte: ";
  EXPECT_NE(write_with_delegate(dir / "b", linear_graph("p.weight", "q.weight.scales"))
                .find(program + "named data 'p.weight' is nowhere"),
            std::string::npos);
  EXPECT_NE(write_with_delegate(dir / "c", linear_graph("q.weight.scales", "q.weight"))
                .find(program + "16 bytes, expected 128 (named data 'q.weight.scales')"),
            std::string::npos);
}

TEST(CodedBundles, BackendsAreThoseOfTheManifest) {
  const TempDir dir;
  ASSERT_EQ(write_with_delegate(dir / "a", linear_graph("q.weight", "q.weight.scales")), "");
  ThreadPool pool(1);
  Manifest manifest = Bundle::open(dir / "a", false, pool)->manifest();
  manifest.components[0].programs[0].backends.clear();
  write_file(dir / "a/manifest.json", write_manifest(manifest));
  const auto bundle = Bundle::open(dir / "a", false, pool);
  ASSERT_FALSE(bundle);
  EXPECT_NE(bundle.error().message.find("needs the backends [XnnpackBackend], the manifest "
                                        "states []"),
            std::string::npos)
      << bundle.error().message;
}

// All data of this program belongs to delegates.
TEST(CodedBundles, DataOfDelegatesIsFoundBesideALooseProgram) {
  const TempDir dir;
  ASSERT_EQ(write_with_delegate(dir / "a", linear_graph("q.weight", "q.weight.scales"), false), "");
  const std::string stem = dir / "a/decoder-00001-of-00001";
  const MappedFile file = MappedFile::open(stem + ".pte").value();
  const pte::LoadedProgram loaded = pte::read_program(file.bytes(), "x").value();
  const auto files_of = [&](const std::vector<std::string>& given) -> std::string {
    LooseData data;
    if (const Status added = data.add(given); !added) return added.error().message;
    const auto files = data.files_of(stem + ".pte", loaded);
    return files ? files->at(0) : files.error().message;
  };
  EXPECT_EQ(files_of({}), stem + ".ptd");
  const std::string moved = dir / "moved.ptd", copied = dir / "copied.ptd";
  write_file(copied, read_file(stem + ".ptd"));
  std::filesystem::rename(stem + ".ptd", moved);
  EXPECT_EQ(files_of({moved}), moved);
  EXPECT_EQ(files_of({}), stem +
                              ".pte: data of a delegate 'q.weight' is in no data file (there is "
                              "none of the same name beside the program); give data FILE");
  EXPECT_EQ(files_of({moved, copied}),
            stem + ".pte: data of a delegate 'q.weight' is in " + moved + " and in " + copied);
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
    part.lowered =
        std::make_shared<graph::LoweredProgram>(tiny_program(weights, {}, "tokens", "logits"));
    part.lowered->named = {"q.weight", "q.weight.scales"};
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
}  // namespace ferry::packer::coding_test
