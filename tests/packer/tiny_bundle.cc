#include "tests/packer/tiny_bundle.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/sha256.h"

namespace ferry::packer {
namespace {

constexpr int32_t kWidth = 4;

pte::Tensor f32_tensor(std::vector<int32_t> sizes) {
  pte::Tensor tensor;
  tensor.dtype = DType::kF32;
  tensor.sizes = std::move(sizes);
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    tensor.dim_order.push_back(static_cast<uint8_t>(i));
  }
  return tensor;
}

pte::Tensor planned(std::vector<int32_t> sizes, uint32_t memory, uint64_t offset) {
  pte::Tensor tensor = f32_tensor(std::move(sizes));
  tensor.allocation = pte::Allocation{memory, offset};
  return tensor;
}

graph::Literal counting_literal(const std::string& key, uint64_t bytes) {
  return {key, bytes, [](uint64_t offset, std::span<std::byte> out) {
            for (std::byte& b : out) b = static_cast<std::byte>(offset++ * 7 + 1);
          }};
}

// Adds values to a method.
struct MethodMaker {
  pte::Method method;
  int32_t add(pte::Value value) {
    method.values.push_back(std::move(value));
    return static_cast<int32_t>(method.values.size()) - 1;
  }
};

pte::Method metadata_method() {
  pte::Method method;
  method.name = "get_max_seq_len";
  method.values = {int64_t{kWidth}};
  method.outputs = {0};
  method.memory_bytes = {0};
  return method;
}

}  // namespace

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file) << path;
}

std::map<std::string, std::string> read_directory(const std::string& path) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    files[entry.path().filename().string()] = read_file(entry.path().string());
  }
  return files;
}

std::string hex_digest(const std::string& bytes) {
  return to_hex(sha256(std::as_bytes(std::span<const char>(bytes))));
}

size_t MemorySource::add(const std::string& name, DType dtype, Shape shape, uint32_t file) {
  while (files_.size() <= file) {
    const std::string header = "header " + std::to_string(files_.size());
    const auto bytes = std::as_bytes(std::span<const char>(header));
    files_.push_back({"model-" + std::to_string(files_.size()) + ".safetensors",
                      header.size(),
                      {bytes.begin(), bytes.end()}});
  }
  uint64_t bytes = static_cast<uint64_t>(dtype_bytes(dtype));
  for (int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  entries_.push_back({name, dtype, std::move(shape), bytes, file, files_[file].bytes});
  files_[file].bytes += bytes;
  std::string contents;
  uint32_t state = static_cast<uint32_t>(entries_.size()) * 2654435761u;
  for (uint64_t i = 0; i < bytes; ++i) {
    state = state * 1664525u + 1013904223u;
    // Bytes of exponents stay small, so that every pattern is a finite number.
    contents.push_back(static_cast<char>(state >> 24 & (i % 2 == 1 ? 0x3f : 0xff)));
  }
  bytes_.push_back(std::move(contents));
  read_.push_back(0);
  return entries_.size() - 1;
}

Status MemorySource::read(size_t index, uint64_t offset, std::span<std::byte> out) const {
  if (index == failing_) return fail(ErrorCode::kIo, "checkpoint: the disk is on fire");
  std::atomic_ref(read_[index]).fetch_add(1);
  std::memcpy(out.data(), bytes_[index].data() + offset, out.size());
  return {};
}

Status MemorySource::check_unchanged() const {
  if (changed_) return fail(ErrorCode::kIo, "checkpoint: changed while it was being read");
  return {};
}

graph::LoweredProgram tiny_program(const graph::StateDict& weights,
                                   const std::vector<std::string>& names, const std::string& input,
                                   const std::string& output) {
  graph::LoweredProgram lowered;
  MethodMaker maker;
  const int32_t x = maker.add(f32_tensor({1, kWidth}));
  const int32_t none = maker.add(pte::None{});
  const int32_t alpha = maker.add(int64_t{1});
  pte::Tensor bias = f32_tensor({1, kWidth});
  bias.data_index = 1;
  const int32_t constant = maker.add(bias);
  const int32_t y = maker.add(planned({1, kWidth}, 1, 0));
  const int32_t scratch = maker.add(planned({1, 64}, 1, 16));
  const int32_t plain = maker.add(planned({2}, 2, 0));
  pte::Tensor kept = planned({3}, 2, 16);
  kept.data_index = 1;
  const int32_t stored = maker.add(kept);
  maker.method.name = "forward";
  maker.method.operators = {{"aten::add", "out"}, {"aten::linear", "out"}};
  maker.method.instructions.push_back(pte::KernelCall{0, {x, constant, alpha, y, y}});
  for (const std::string& name : names) {
    const auto [from, index] = weights.find_output(name);
    const graph::RecipeOutput& made = from->recipe.outputs[index];
    pte::Tensor weight = f32_tensor({made.shape.begin(), made.shape.end()});
    weight.dtype = made.dtype;
    if (made.dtype == DType::kI4) {
      weight.dtype = DType::kU8;
      weight.sizes.back() /= 2;
    }
    weight.external = true;
    weight.fqn = name;
    const int32_t w = maker.add(weight);
    maker.method.instructions.push_back(pte::KernelCall{1, {x, w, none, scratch, scratch}});
  }
  maker.method.inputs = {x};
  maker.method.outputs = {y};
  maker.method.memory_bytes = {0, 272, 28};
  lowered.program.methods = {std::move(maker.method), metadata_method()};
  lowered.sizes.constants = {0, 16};
  lowered.sizes.initial = {0, 12};
  lowered.constants = {graph::Literal{}, counting_literal("bias", 16)};
  lowered.initial = {graph::Literal{}, counting_literal("kept", 12)};
  lowered.weights = names;
  graph::LoweredMethod forward;
  forward.name = "forward";
  forward.inputs = {{input, DType::kF32, {1, kWidth}}};
  forward.outputs = {{output, DType::kF32, {1, kWidth}}};
  forward.probes = {{"hidden_states." + output, y}};
  forward.buffers = {{"plain", plain, DType::kF32, {2}, 8, 0},
                     {"kept", stored, DType::kF32, {3}, 12, 1}};
  forward.activation_bytes = 272;
  forward.activation_lower_bound = 272;
  lowered.methods = {std::move(forward)};
  lowered.state_bytes = 28;
  return lowered;
}

TinyModel::TinyModel() {
  const size_t tok = source.add("model.tok", DType::kF32, {6, 4});
  const size_t norm = source.add("model.norm", DType::kBF16, {4});
  source.add("vision.patch", DType::kF32, {2, 2});
  const size_t q = source.add("model.q", DType::kF32, {4, 4});
  const size_t gate = source.add("model.gate", DType::kF32, {2, 4}, 1);
  const size_t up = source.add("model.up", DType::kF32, {3, 4}, 1);
  const auto add = [&](const std::string& name, graph::Recipe recipe, const std::string& rule) {
    EXPECT_TRUE(weights.add({name, std::move(recipe), rule}));
  };
  add("tok.weight", graph::whole_tensor(source, tok), "embedding");
  add("output.weight", graph::whole_tensor(source, tok), "tied");
  graph::Recipe cast = graph::whole_tensor(source, norm);
  cast.cast(DType::kF32);
  add("norm.weight", cast, "norm");
  add("q.weight",
      {.pieces = {run_piece(q, 8, 8), run_piece(q, 0, 8)}, .outputs = {{.shape = {4, 4}}}}, "rows");
  add("ffn.weight",
      {.pieces = {run_piece(gate, 0, 8), run_piece(up, 0, 12)}, .outputs = {{.shape = {5, 4}}}},
      "stack");
}

BundleInput TinyModel::input() const {
  BundleInput input;
  input.manifest.tool = {"ferry", "0.2.0"};
  input.manifest.options = {{"dtype", "f32"}};
  input.manifest.model_type = "tiny";
  input.manifest.vocab_size = kWidth;
  input.manifest.hidden_size = kWidth;
  input.manifest.num_layers = 2;
  input.manifest.context_length = 8;
  input.manifest.prefill_length = 4;
  input.manifest.program_style = "stateful";
  input.manifest.weight_dtype = "f32";
  input.manifest.bos_id = 1;
  input.manifest.eos_ids = {2, 3};
  input.manifest.dropped = {{"vision.patch", "vision", "no vision encoder \u00fc"}};
  input.manifest.default_tolerance = 1e-5;
  BundleInput::Component& decoder = input.components.emplace_back();
  decoder.role = "text_decoder";
  decoder.weight_dtype = "f32";
  decoder.parts.push_back(
      {std::make_shared<graph::LoweredProgram>(
           tiny_program(weights, {"tok.weight", "norm.weight", "q.weight"}, "tokens", "hidden")),
       &weights, 0, 1});
  decoder.parts.push_back({std::make_shared<graph::LoweredProgram>(tiny_program(
                               weights, {"ffn.weight", "output.weight"}, "hidden", "logits")),
                           &weights, 1, 1});
  input.copied = copied;
  return input;
}

CopiedFile copied_file(const std::string& name, const std::string& path) {
  return {name, std::make_shared<const InputFile>(InputFile::open(path).value())};
}

BundleInput TinyModel::one_shard() const {
  BundleInput whole = input();
  whole.manifest.num_layers = 1;
  whole.components[0].parts.pop_back();
  whole.components[0].parts[0].lowered = std::make_shared<graph::LoweredProgram>(
      tiny_program(weights, {"tok.weight", "norm.weight"}, "tokens", "logits"));
  return whole;
}

BundleInput TinyModel::two_methods() const {
  BundleInput both = input();
  for (BundleInput::Part& part : both.components[0].parts) {
    std::vector<pte::Method>& methods = part.lowered->program.methods;
    methods.insert(methods.begin() + 1, methods[0]);
    methods[1].name = "decode";
    part.lowered->methods.push_back(part.lowered->methods[0]);
    part.lowered->methods[1].name = "decode";
  }
  return both;
}

Manifest write_tiny_bundle(const TinyModel& model, const std::string& directory, size_t threads,
                           uint64_t max_file_bytes) {
  const auto plan = BundlePlan::make(model.input(), model.source, max_file_bytes);
  if (!plan) {
    ADD_FAILURE() << plan.error().message
                  << (plan.error().details.empty() ? std::string()
                                                   : "\n" + plan.error().details[0]);
    return {};
  }
  ThreadPool pool(threads);
  auto written = plan->write(directory, false, pool, {});
  if (!written) {
    ADD_FAILURE() << written.error().message;
    return {};
  }
  return written->manifest;
}

}  // namespace ferry::packer
