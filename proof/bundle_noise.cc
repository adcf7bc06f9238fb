#include "proof/bundle_noise.h"

#include <algorithm>
#include <array>
#include <utility>

#include "proof/bounds.h"
#include "proof/prompts.h"
#include "proof/rounding_proof.h"
#include "proof/text_model.h"
#include "proof/tower_comparison.h"
#include "runner/row_encoders.h"

namespace ferry::proof {
namespace {

// Seeds of the disturbed executions. With more executions, noise depends less on chance.
constexpr std::array<uint64_t, 3> kDraws = {1, 2, 3};

// One execution of the decoder or text encoder, and of the vision tower if there is one.
struct Execution {
  std::unique_ptr<TensorSource> text, tower;
};

Result<Execution> execute(const packer::Bundle& bundle, std::vector<RecordedPrompt>& prompts,
                          const runner::MethodOptions& method, const runner::DecodeOptions& decode,
                          ThreadPool& pool) {
  Execution out;
  const runner::RowEncoders encoders = FERRY_TRY(runner::RowEncoders::load(bundle, pool, method));
  if (!encoders.empty()) out.tower = FERRY_TRY(record_tower(encoders, prompts, bundle.path()));
  TextModel model = FERRY_TRY(TextModel::load(bundle, pool, method, decode));
  out.text = FERRY_TRY(model.record(prompts, bundle.path()));
  return out;
}

}  // namespace

Status follow_routes(const Reference& recorded, int64_t layers,
                     std::vector<RecordedPrompt>& prompts) {
  for (RecordedPrompt& prompt : prompts) {
    const auto found = std::ranges::find(recorded.prompts(), prompt.name, &ReferencePrompt::name);
    if (found != recorded.prompts().end()) {
      prompt.routes = FERRY_TRY(routes_of(recorded, *found, layers));
    }
  }
  return {};
}

Result<std::shared_ptr<const NoiseModel>> f32_noise(const packer::Bundle& bundle,
                                                    std::vector<RecordedPrompt> prompts,
                                                    const BundleNoiseOptions& options,
                                                    ThreadPool& pool) {
  // Inputs and outputs in half precision, such as masks, keep their dtype.
  const runner::MethodOptions method = {.widen = has_half_matrices(bundle),
                                        .memory = options.memory};
  const Execution in_f32 = FERRY_TRY(execute(bundle, prompts, method, options.decode, pool));
  const Reference draw = FERRY_TRY(Reference::open(*in_f32.text));
  FERRY_RETURN_IF_ERROR(follow_routes(draw, bundle.manifest().num_layers, prompts));
  const Execution in_f64 = FERRY_TRY(
      execute(bundle, prompts, {.f64 = true, .memory = options.memory}, options.decode, pool));
  runner::MethodOptions other = method;
  other.disturb = kDraws[0];
  const Execution disturbed = FERRY_TRY(execute(bundle, prompts, other, options.decode, pool));
  const Reference second = FERRY_TRY(Reference::open(*disturbed.text));
  const Reference exact = FERRY_TRY(Reference::open(*in_f64.text));
  auto noise = std::make_shared<NoiseModel>();
  const Reference* const draws[] = {&draw, &second};
  FERRY_RETURN_IF_ERROR(noise->add(exact, draws));
  if (in_f64.tower) {
    const Reference exact_tower = FERRY_TRY(Reference::open(*in_f64.tower));
    const Reference tower = FERRY_TRY(Reference::open(*in_f32.tower));
    const Reference* const towers[] = {&tower};
    FERRY_RETURN_IF_ERROR(noise->add(exact_tower, towers));
  }
  return std::shared_ptr<const NoiseModel>(std::move(noise));
}

Result<std::shared_ptr<const NoiseModel>> disturbed_noise(const packer::Bundle& bundle,
                                                          const Reference& exact,
                                                          std::vector<RecordedPrompt> prompts,
                                                          const BundleNoiseOptions& options,
                                                          ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(follow_routes(exact, bundle.manifest().num_layers, prompts));
  std::vector<std::unique_ptr<TensorSource>> sources;
  std::vector<Reference> draws;
  for (const uint64_t seed : kDraws) {
    const runner::MethodOptions method = {.widen = true, .disturb = seed, .memory = options.memory};
    TextModel model = FERRY_TRY(TextModel::load(bundle, pool, method, options.decode));
    sources.push_back(FERRY_TRY(model.record(prompts, bundle.path())));
    draws.push_back(FERRY_TRY(Reference::open(*sources.back())));
  }
  std::vector<const Reference*> pointers;
  for (const Reference& draw : draws) pointers.push_back(&draw);
  auto noise = std::make_shared<NoiseModel>();
  FERRY_RETURN_IF_ERROR(noise->add(exact, pointers));
  return std::shared_ptr<const NoiseModel>(std::move(noise));
}

}  // namespace ferry::proof
