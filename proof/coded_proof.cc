#include "proof/coded_proof.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/checked.h"
#include "core/text.h"
#include "proof/bounds.h"
#include "proof/checkpoint_execution.h"
#include "proof/parity_report.h"
#include "proof/prompts.h"
#include "proof/reference.h"
#include "proof/text_model.h"
#include "runner/row_encoders.h"

namespace ferry::proof {
namespace {

int64_t elements_of(const graph::Weight& weight) {
  return checked_numel(weight.recipe.output().shape).value_or(0);
}

// Returns the first weight of the model that the bundle lacks; empty if there is none.
std::string missing_weight(const StoredWeights& stored, const plan::Conversion& layers) {
  for (const auto& [name, weight] : weights_of(layers)) {
    if (!stored.has(name, elements_of(*weight))) return name;
  }
  return {};
}

// Reads the stored weights as f32 bytes.
ReadWeight weights_stored_in(const StoredWeights& stored) {
  return
      [&stored](const graph::Weight& weight, uint64_t offset, std::span<std::byte> out) -> Status {
        std::vector<float> values(out.size() / sizeof(float));
        FERRY_RETURN_IF_ERROR(
            stored.read(weight.name, static_cast<int64_t>(offset / sizeof(float)), values));
        std::memcpy(out.data(), values.data(), out.size());
        return {};
      };
}

using RecordedPrompts = std::vector<RecordedPrompt>;

// Returns the prompts with the continuations that the bundle chooses if it does not quantise
// activations. These are the continuations of the model with the bundle's weights.
Result<RecordedPrompts> own_prompts(const packer::Bundle& bundle, const RecordedPrompts& prompts,
                                    const CodedProofOptions& options, ThreadPool& pool) {
  TextModel model = FERRY_TRY(
      TextModel::load(bundle, pool, {.widen = true, .memory = options.memory}, options.decode));
  const runner::RowEncoders encoders =
      FERRY_TRY(runner::RowEncoders::load(bundle, pool, {.widen = true, .memory = options.memory}));
  RecordedPrompts own = prompts;
  for (RecordedPrompt& prompt : own) prompt.routes.clear();
  FERRY_RETURN_IF_ERROR(encode_images(encoders, own));
  FERRY_RETURN_IF_ERROR(model.continue_prompts(model.capacity(), own, /*least=*/1));
  return own;
}

Result<ParityReport> compare(const packer::Bundle& bundle, const Reference& path,
                             const ParityBounds& bounds, runner::MethodOptions method,
                             const CodedProofOptions& options, ThreadPool& pool) {
  method.memory = options.memory;
  TextModel model = FERRY_TRY(TextModel::load(bundle, pool, method, options.decode));
  const runner::RowEncoders encoders = FERRY_TRY(runner::RowEncoders::load(bundle, pool, method));
  return model.verify(path, bounds, {.encoders = &encoders, .details = options.details});
}

}  // namespace

Result<CodedProof> prove_codes(const packer::Bundle& bundle, const StoredWeights& stored,
                               const plan::Conversion& layers,
                               const std::vector<RecordedPrompt>& prompts,
                               const CodedProofOptions& options, ThreadPool& pool) {
  if (const std::string name = missing_weight(stored, layers); !name.empty()) {
    CodedProof proof;
    proof.absent = fmt::format("the bundle has no weight {} as a whole", quoted(name));
    return proof;
  }
  return prove_codes(bundle, weights_stored_in(stored), layers, prompts, options, pool);
}

Result<CodedProof> prove_codes(const packer::Bundle& bundle, const ReadWeight& weights,
                               const plan::Conversion& layers,
                               const std::vector<RecordedPrompt>& prompts,
                               const CodedProofOptions& options, ThreadPool& pool) {
  CodedProof proof;
  const RecordedPrompts own = FERRY_TRY(own_prompts(bundle, prompts, options, pool));
  const ExecutionOutputs path = FERRY_TRY(execute_checkpoint(
      layers, own, bundle.path() + ", its weights in f32", pool,
      {.in_several_calls = false, .weights = weights, .progress = options.progress}));
  const Reference recorded = FERRY_TRY(Reference::open(*path.one_call));
  ParityBounds exact = widened_bounds_of(bundle, options.tolerance);
  if (!exact.given && !exact.has_floors()) {
    exact = exact.with(
        FERRY_TRY(measure_noise(layers, own, recorded, weights, pool, options.progress)).noise);
  }
  proof.exact = FERRY_TRY(compare(bundle, recorded, exact, {.widen = true}, options, pool));
  const ParityBounds bounds = activation_bounds_of(bundle, options.tolerance);
  const bool as_exact = !bounds.has_floors() && !bounds.given;
  proof.activations = FERRY_TRY(
      compare(bundle, recorded, as_exact ? exact : bounds.as_measurement(), {}, options, pool));
  if (!bounds.coded_db || bounds.given) return proof;
  // An execution in plain code measures the loss by 8-bit activations.
  const ParityReport noise = FERRY_TRY(compare(bundle, recorded, bounds.as_measurement(),
                                               {.widen = true, .round_rows = true}, options, pool));
  floors_of_noise(noise).judge(proof.activations);
  return proof;
}

}  // namespace ferry::proof
