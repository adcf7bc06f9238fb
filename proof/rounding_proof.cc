#include "proof/rounding_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "proof/bundle_noise.h"
#include "proof/expert_search.h"
#include "proof/parity_report.h"
#include "proof/reference_check.h"
#include "proof/reference_proof.h"
#include "proof/text_model.h"
#include "runner/decoder.h"

namespace ferry::proof {
namespace {

// The signal-to-noise ratio of values that were rounded once.
constexpr double kLeastNoiseBF16Db = 55;
constexpr double kLeastNoiseF16Db = 73;

bool any_rounded(const packer::Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors, &packer::ManifestTensor::rounded);
}

// A bundle with rounded weights and activations in f32 may have as much noise as `rounding` its
// activations makes, and kRoundedWeightsDb more.
MeasuredFloors floors_of_rounding(const ParityReport& rounding) {
  const double most =
      *rounding.bounds.rounding == DType::kF16 ? kLeastNoiseF16Db : kLeastNoiseBF16Db;
  // A tensor without rounded activations, such as an embedding, still has rounded weights.
  const auto floor_of = [&](const ValueMetrics& noise) {
    return std::min(noise.sqnr_db, most) - kRoundedWeightsDb;
  };
  MeasuredFloors floors{.logits = floor_of(rounding.metrics.values), .tensors = {}};
  for (const LayerResult& layer : rounding.layers) {
    floors.tensors[layer.tensor.name] = floor_of(layer.metrics);
  }
  return floors;
}

bool has_experts(const runner::Decoder& decoder, const packer::Manifest& manifest) {
  for (int64_t layer = 0; layer < manifest.num_layers; ++layer) {
    if (decoder.experts_of(layer).first > 0) return true;
  }
  return false;
}

// kBadInput unless the model has the experts that the reference names.
Status check_routes(runner::Decoder& decoder, const Reference& reference,
                    const std::vector<RecordedPrompt>& prompts) {
  for (const RecordedPrompt& prompt : prompts) {
    const Status known = decoder.force_experts(&prompt.routes);
    if (known) continue;
    return fail(known.error().code, fmt::format("{}: prompt {}: {}", reference.path(),
                                                quoted(prompt.name), known.error().message));
  }
  return decoder.force_experts(nullptr);
}

// Sends the tokens of every prompt through the experts of the reference. Returns how many choices
// are not those of the bundle's own routers.
Result<int64_t> follow_reference(runner::Decoder& decoder, const packer::Manifest& manifest,
                                 const Reference& reference, std::vector<RecordedPrompt>& prompts) {
  if (!has_experts(decoder, manifest)) return 0;
  int64_t exchanged = 0;
  for (RecordedPrompt& prompt : prompts) {
    const auto from = std::ranges::find(reference.prompts(), prompt.name, &ReferencePrompt::name);
    if (!prompt.routes.empty()) continue;  // the reference says which
    FoundRoutes found = FERRY_TRY(find_routes(decoder, manifest, reference, *from));
    prompt.routes = std::move(found.routes);
    exchanged += found.exchanged;
  }
  return exchanged;
}

// The bundle as it is.
Status prove_rounded(const packer::Bundle& bundle, const Reference& in_f32,
                     const Reference& reference, const ParityBounds& bounds,
                     std::optional<uint64_t> memory, ThreadPool& pool,
                     const runner::DecodeOptions& decode, const VerifyOptions& options,
                     RoundingProof& proof) {
  const VerifyOptions beside = {.details = options.details, .progress = options.progress};
  TextModel model = FERRY_TRY(TextModel::load(bundle, pool, {.memory = memory}, decode));
  const std::unique_ptr<runner::VisionEncoder> vision =
      FERRY_TRY(runner::VisionEncoder::load_if_any(bundle, pool, {.memory = memory}));
  proof.rounding = FERRY_TRY(model.verify(in_f32, bounds.as_measurement(), beside));
  VerifyOptions with_vision = options;
  with_vision.vision = vision.get();
  proof.outputs = FERRY_TRY(model.verify(reference, bounds.as_measurement(), with_vision));
  if (bounds.given || !activation_bounds_of(bundle, {}).coded_db) return {};
  const runner::MethodOptions rounded = {.widen = true, .round_rows = true, .memory = memory};
  TextModel plain = FERRY_TRY(TextModel::load(bundle, pool, rounded, decode));
  const ParityReport noise = FERRY_TRY(plain.verify(in_f32, bounds.as_measurement(), {}));
  floors_of_noise(noise).judge(proof.rounding);
  return {};
}

}  // namespace

Result<runner::ExpertRoutes> routes_of(const Reference& reference, const ReferencePrompt& prompt,
                                       int64_t layers) {
  runner::ExpertRoutes routes;
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const std::string& name : {route_name(layer), greedy_route_name(layer)}) {
      if (!prompt.has(name)) continue;
      const std::vector<int64_t> ids =
          FERRY_TRY(reference.integers(prompt, name, reference.shape(prompt, name)));
      routes[layer].insert(routes[layer].end(), ids.begin(), ids.end());
    }
  }
  return routes;
}

Result<std::vector<RecordedPrompt>> prompts_of(const Reference& reference,
                                               const packer::Manifest& manifest, bool with_pixels) {
  std::vector<RecordedPrompt> prompts;
  for (const ReferencePrompt& from : reference.prompts()) {
    PromptImages images;
    if (from.needs_images()) {
      // Those that have pixel values alone need a vision encoder.
      const bool takes_rows = manifest.find(kTokenEmbeddingRole) != nullptr;
      const bool encoded = with_pixels && from.has("pixel_values");
      if (!takes_rows || !(from.has("image_features") || encoded)) continue;
      images = FERRY_TRY(images_of(reference, from, manifest));
    }
    FERRY_RETURN_IF_ERROR(check_prompt(reference, from, manifest));
    RecordedPrompt& prompt = prompts.emplace_back();
    prompt.images = std::move(images);
    prompt.name = from.name;
    prompt.tokens = from.input_ids;
    prompt.routes = FERRY_TRY(routes_of(reference, from, manifest.num_layers));
    if (from.has("greedy_ids") && manifest.program_style != kEncoderStyle) {
      prompt.continuation = FERRY_TRY(reference.ids(from, "greedy_ids"));
      FERRY_RETURN_IF_ERROR(check_continuation(reference, from, prompt.continuation, manifest));
    }
  }
  if (!prompts.empty()) return prompts;
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{}: every prompt needs images, which the bundle does not take or of which the "
                  "reference has no image_features",
                  reference.path()));
}

Result<RoundingProof> prove_rounding(const packer::Bundle& bundle, const Reference& reference,
                                     const ParityBounds& bounds, std::optional<uint64_t> memory,
                                     ThreadPool& pool, const runner::DecodeOptions& decode,
                                     const VerifyOptions& with) {
  const packer::Manifest& manifest = bundle.manifest();
  std::vector<RecordedPrompt> prompts = FERRY_TRY(prompts_of(reference, manifest));
  RoundingProof proof;
  proof.exact_weights = !bounds.coded_db && !any_rounded(manifest);
  std::unique_ptr<TensorSource> source;
  bool continued = true;
  {
    const runner::MethodOptions widened = {.widen = true, .memory = memory};
    TextModel model = FERRY_TRY(TextModel::load(bundle, pool, widened, decode));
    if (runner::Decoder* decoder = model.decoder()) {
      FERRY_RETURN_IF_ERROR(check_routes(*decoder, reference, prompts));
      if (!proof.exact_weights) {
        proof.exchanged = FERRY_TRY(follow_reference(*decoder, manifest, reference, prompts));
        continued = !has_experts(*decoder, manifest);
      }
    }
    source = FERRY_TRY(model.record(prompts, bundle.path() + " with activations in f32"));
  }
  const Reference recorded = FERRY_TRY(Reference::open(*source));
  const VerifyOptions options = {.recorded = &recorded,
                                 .continuation = continued,
                                 .details = with.details,
                                 .progress = with.progress};
  // Codes are as far from the weights as quantisation makes them, whatever activations are, and may
  // choose other tokens than the reference.
  VerifyOptions in_f32 = options;
  in_f32.continuation = continued && !bounds.coded_db;
  ParityBounds exact = bounds.coded_db ? bounds.as_measurement() : f32_bounds(bundle);
  if (bounds.given) exact = bounds;
  if (proof.exact_weights && !bounds.given) {
    const BundleNoiseOptions noise = {.memory = memory, .decode = decode};
    exact = exact.with(FERRY_TRY(f32_noise(bundle, prompts, noise, pool)));
  }
  proof.in_f32 = FERRY_TRY(compare_references(recorded, reference, exact, in_f32));
  FERRY_RETURN_IF_ERROR(
      prove_rounded(bundle, recorded, reference, bounds, memory, pool, decode, options, proof));
  if (bounds.given) return proof;
  if (!proof.exact_weights && !bounds.coded_db && !proof.in_f32.parity) {
    floors_of_rounding(proof.rounding).judge(proof.in_f32);
  }
  if (bounds.coded_db) proof.decided = proof.in_f32.metrics.values.sqnr_db >= kTellingDb;
  return proof;
}

}  // namespace ferry::proof
