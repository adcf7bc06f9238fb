// --to bpte: a bundled program is one file with a program that contains its weights, and test
// cases: prompts of a reference with their expected logits.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "conversion/export.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "formats/pte/bundled.h"
#include "graph/lower.h"
#include "graph/passes/passes.h"
#include "plan/program_metadata.h"
#include "proof/reference.h"

namespace ferry::conversion {
namespace {

template <class T>
pte::TestTensor tensor_of(DType dtype, std::vector<int32_t> sizes, const std::vector<T>& values) {
  pte::TestTensor tensor{dtype, std::move(sizes),
                         std::vector<std::byte>(values.size() * sizeof(T))};
  if (!values.empty()) std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return tensor;
}

// Makes a test case of one call at position 0, with as many tokens of the prompt as a call takes.
Result<pte::TestCase> case_of(const proof::Reference& reference,
                              const proof::ReferencePrompt& prompt, int64_t vocab_size,
                              const converters::BuildOptions& build) {
  const auto length = static_cast<int64_t>(prompt.input_ids.size());
  const Shape& stored = reference.shape(prompt, "logits");
  const Shape expected =
      stored.size() == 3 ? Shape{1, length, vocab_size} : Shape{length, vocab_size};
  const std::vector<float> logits = FERRY_TRY(reference.floats(prompt, "logits", expected));
  const int64_t count = std::min(length, build.prefill_length);
  const int64_t first = build.all_logits ? 0 : count - 1;
  const std::vector<int64_t> ids(prompt.input_ids.begin(), prompt.input_ids.begin() + count);
  const std::vector<float> rows(logits.begin() + first * vocab_size,
                                logits.begin() + count * vocab_size);
  const auto tokens = static_cast<int32_t>(count), columns = static_cast<int32_t>(vocab_size);
  std::vector<int32_t> sizes = {1, columns};
  if (build.all_logits) sizes = {1, tokens, columns};
  pte::TestCase made;
  made.inputs.emplace_back(tensor_of(DType::kI64, {1, tokens}, ids));
  made.inputs.emplace_back(tensor_of(DType::kI64, {1}, std::vector<int64_t>{0}));
  made.expected.emplace_back(tensor_of(DType::kF32, std::move(sizes), rows));
  return made;
}

// Makes test cases of all prompts that have logits for every token.
Result<pte::TestSuite> suite_of(const std::string& path, int64_t vocab_size,
                                const converters::BuildOptions& build) {
  const std::unique_ptr<TensorSource> source = FERRY_TRY(checkpoint::open_tensors(path));
  const proof::Reference reference = FERRY_TRY(proof::Reference::open(*source));
  pte::TestSuite suite{std::string(kForwardMethod), {}};
  for (const proof::ReferencePrompt& prompt : reference.prompts()) {
    if (!prompt.has("logits") || prompt.input_ids.empty()) continue;
    suite.cases.push_back(FERRY_TRY(case_of(reference, prompt, vocab_size, build)));
  }
  if (!suite.cases.empty()) return suite;
  return bad_input(fmt::format("{}: no prompt has logits", printable(path)));
}

// A program that contains its weights as constants.
struct ClosedProgram {
  graph::LoweredProgram lowered;
  std::map<uint32_t, const graph::Weight*> weights = {};  // by the index of the constant
};

// Returns the index of the constant that holds the weight. Weights with equal recipes share one
// constant.
uint32_t constant_of(const graph::Weight& weight, ClosedProgram& program) {
  for (const auto& [constant, stored] : program.weights) {
    if (stored->recipe == weight.recipe) return constant;
  }
  const auto constant = static_cast<uint32_t>(program.lowered.sizes.constants.size());
  program.lowered.sizes.constants.push_back(weight.recipe.output().bytes());
  program.weights.emplace(constant, &weight);
  return constant;
}

Result<ClosedProgram> close_program(graph::LoweredProgram lowered,
                                    const graph::StateDict& weights) {
  ClosedProgram program{.lowered = std::move(lowered)};
  for (pte::Method& method : program.lowered.program.methods) {
    for (pte::Value& value : method.values) {
      auto* tensor = std::get_if<pte::Tensor>(&value);
      if (tensor == nullptr || !tensor->external) continue;
      const graph::Weight* weight = weights.find(tensor->fqn);
      if (weight == nullptr) {
        return fail(ErrorCode::kInternal, fmt::format("no weight {}", quoted(tensor->fqn)));
      }
      tensor->data_index = constant_of(*weight, program);
      tensor->external = false;
      tensor->fqn.clear();
    }
  }
  return program;
}

Result<packer::WeightFile> bpte_file(const ClosedProgram& program, const pte::TestSuite& suite,
                                     std::string path) {
  pte::Layout layout = FERRY_TRY(pte::plan_program(program.lowered.program, program.lowered.sizes));
  pte::BundledLayout around = FERRY_TRY(pte::plan_bundled({suite}, layout.file_bytes));
  const uint64_t begin = around.head.size();
  packer::WeightFile file{.path = std::move(path), .bytes = around.file_bytes};
  file.known.push_back({0, std::move(around.head)});
  file.known.push_back({begin, std::move(layout.head)});
  for (const pte::Piece& piece : layout.pieces) {
    const uint64_t offset = begin + piece.offset;
    const auto weight = program.weights.find(piece.index);
    if (piece.kind == pte::Piece::Kind::kConstant && weight != program.weights.end()) {
      file.tensors.push_back({weight->second->name, weight->second->recipe, offset});
      continue;
    }
    const bool constant = piece.kind == pte::Piece::Kind::kConstant;
    const auto& literals = constant ? program.lowered.constants : program.lowered.initial;
    if (piece.index >= literals.size() || literals[piece.index].bytes != piece.size) {
      return fail(ErrorCode::kInternal, fmt::format("constant {} has no contents", piece.index));
    }
    file.literals.push_back({offset, literals[piece.index]});
  }
  return file;
}

Status check_bpte_options(const plan::MappedModel& model, const ExportOptions& options) {
  const plan::ConvertOptions& c = options.convert;
  if (c.reference.empty()) {
    return fail_field(ErrorCode::kUsage, "reference",
                      " FILE is required: a bundled program holds its prompts and logits");
  }
  if (c.max_file_bytes > 0) {
    return fail_field(ErrorCode::kUsage, "max_file_size", ": a bundled program is one file");
  }
  const converters::ModelConfig& config = model.checkpoint.config;
  if (!config.takes_rows() && !config.has_cross_attention()) return {};
  return fail_field(ErrorCode::kUnsupported, "to",
                    fmt::format(" bpte: {}: {} is a {} model, which takes several programs",
                                printable(c.source), quoted(config.model_type),
                                config.audio    ? "speech"
                                : config.source ? "encoder-decoder"
                                                : "vision-language"));
}

}  // namespace

Result<PlannedFiles> plan_bundled_files(plan::MappedModel& model, const ExportOptions& options) {
  FERRY_RETURN_IF_ERROR(check_bpte_options(model, options));
  const converters::ModelConfig& config = model.checkpoint.config;
  const pte::TestSuite suite =
      FERRY_TRY(suite_of(options.convert.reference, config.vocab_size, model.build));
  graph::Model whole = FERRY_TRY(
      graph::cast_weights(std::move(model.components.front().model), options.convert.dtype));
  whole = FERRY_TRY(graph::init_buffers(std::move(whole), options.convert.buffers));
  graph::LoweredProgram lowered =
      FERRY_TRY(graph::lower(whole.methods, plan::program_metadata(config, model.build)));
  const ClosedProgram program = FERRY_TRY(close_program(std::move(lowered), whole.weights));
  PlannedFiles planned;
  planned.files.is_directory = false;
  const std::string name = options.out.empty() ? "model.bpte" : base_name(options.out);
  planned.files.files.push_back(FERRY_TRY(bpte_file(program, suite, name)));
  return planned;
}

}  // namespace ferry::conversion
