#include "proof/rounding_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/program_interface.h"
#include "core/text.h"
#include "packer/loose_programs.h"
#include "proof/bundle_noise.h"
#include "proof/expert_search.h"
#include "proof/parity_report.h"
#include "proof/reference_check.h"
#include "proof/reference_proof.h"
#include "proof/row_ports.h"
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

// Returns floors for a bundle with rounded weights and f32 activations. It may have as much noise
// as `rounding` its activations makes, and kRoundedWeightsDb more.
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
// differ from those of the bundle's own routers.
Result<int64_t> follow_reference(runner::Decoder& decoder, const packer::Manifest& manifest,
                                 const Reference& reference, std::vector<RecordedPrompt>& prompts) {
  if (!has_experts(decoder, manifest)) return 0;
  int64_t exchanged = 0;
  for (RecordedPrompt& prompt : prompts) {
    const auto from = std::ranges::find(reference.prompts(), prompt.name, &ReferencePrompt::name);
    if (!prompt.routes.empty()) continue;  // the reference states the routes
    FoundRoutes found = FERRY_TRY(find_routes(decoder, manifest, reference, *from));
    prompt.routes = std::move(found.routes);
    exchanged += found.exchanged;
  }
  return exchanged;
}

// The proof of one bundle. The arguments must outlive the prover.
class RoundingProver {
 public:
  RoundingProver(const packer::Bundle& bundle, const Reference& reference,
                 const ParityBounds& bounds, const RoundingOptions& given, ThreadPool& pool)
      : bundle_(bundle),
        manifest_(bundle.manifest()),
        reference_(reference),
        bounds_(bounds),
        given_(given),
        pool_(pool) {}

  Result<RoundingProof> run() {
    prompts_ = FERRY_TRY(prompts_of(reference_, manifest_));
    // Nobody states whether the weights of a program of another tool were rounded.
    proof_.exact_weights =
        !bounds_.coded_db && !any_rounded(manifest_) && !packer::is_loose(bundle_);
    const std::unique_ptr<TensorSource> in_f32 = FERRY_TRY(execute_in_f32());
    const Reference recorded = FERRY_TRY(Reference::open(*in_f32));
    FERRY_RETURN_IF_ERROR(compare_in_f32(recorded));
    FERRY_RETURN_IF_ERROR(compare_as_it_is(recorded));
    if (!bounds_.given) judge();
    return std::move(proof_);
  }

 private:
  Result<TextModel> load(runner::MethodOptions options) {
    options.memory = given_.memory;
    return TextModel::load(bundle_, pool_, options, given_.decode);
  }

  // Returns the outputs of the bundle with f32 activations as the tensors of a reference. Tokens
  // pass through the experts of the reference.
  Result<std::unique_ptr<TensorSource>> execute_in_f32() {
    TextModel model = FERRY_TRY(load({.widen = true}));
    if (runner::Decoder* decoder = model.decoder()) {
      FERRY_RETURN_IF_ERROR(check_routes(*decoder, reference_, prompts_));
      if (!proof_.exact_weights) {
        proof_.exchanged = FERRY_TRY(follow_reference(*decoder, manifest_, reference_, prompts_));
        continued_ = !has_experts(*decoder, manifest_);
      }
    }
    return model.record(prompts_, bundle_.path() + " with activations in f32");
  }

  Result<ParityBounds> bounds_in_f32() {
    if (bounds_.given) return bounds_;
    const ParityBounds exact = bounds_.coded_db ? bounds_.as_measurement() : f32_bounds(bundle_);
    if (!proof_.exact_weights) return exact;
    const BundleNoiseOptions noise = {.memory = given_.memory, .decode = given_.decode};
    return exact.with(FERRY_TRY(f32_noise(bundle_, prompts_, noise, pool_)));
  }

  VerifyOptions options_with(const Reference& recorded) const {
    return {.recorded = &recorded,
            .continuation = continued_,
            .details = given_.details,
            .progress = given_.progress};
  }

  Status compare_in_f32(const Reference& recorded) {
    VerifyOptions options = options_with(recorded);
    // Quantisation changes the weights, whatever activations are, so the bundle may choose other
    // tokens than the reference.
    options.continuation = continued_ && !bounds_.coded_db;
    const ParityBounds bounds = FERRY_TRY(bounds_in_f32());
    proof_.in_f32 = FERRY_TRY(compare_references(recorded, reference_, bounds, options));
    return {};
  }

  // Compares the bundle as it is with `recorded`, which has its outputs with f32 activations, and
  // with the reference.
  Status compare_as_it_is(const Reference& recorded) {
    const ParityBounds measured = bounds_.as_measurement();
    TextModel model = FERRY_TRY(load({}));
    const runner::RowEncoders encoders =
        FERRY_TRY(runner::RowEncoders::load(bundle_, pool_, {.memory = given_.memory}));
    proof_.rounding = FERRY_TRY(
        model.verify(recorded, measured, {.details = given_.details, .progress = given_.progress}));
    VerifyOptions options = options_with(recorded);
    options.encoders = &encoders;
    proof_.outputs = FERRY_TRY(model.verify(reference_, measured, options));
    if (bounds_.given || !activation_bounds_of(bundle_, {}).coded_db) return {};
    // An execution in plain code measures the loss by 8-bit activations.
    TextModel plain = FERRY_TRY(load({.widen = true, .round_rows = true}));
    const ParityReport noise = FERRY_TRY(plain.verify(recorded, measured, {}));
    floors_of_noise(noise).judge(proof_.rounding);
    return {};
  }

  void judge() {
    if (!proof_.exact_weights && !bounds_.coded_db && !proof_.in_f32.parity) {
      floors_of_rounding(proof_.rounding).judge(proof_.in_f32);
    }
    if (bounds_.coded_db) proof_.decided = proof_.in_f32.metrics.values.sqnr_db >= kTellingDb;
  }

  const packer::Bundle& bundle_;
  const packer::Manifest& manifest_;
  const Reference& reference_;
  const ParityBounds& bounds_;
  const RoundingOptions& given_;
  ThreadPool& pool_;
  std::vector<RecordedPrompt> prompts_;
  bool continued_ = true;  // continuations are compared
  RoundingProof proof_;
};

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
    if (has_rows(from, manifest)) {
      // Prompts that have only pixel values or frames need an encoder.
      const std::vector<const RowEncoder*> encoders = encoders_of(from, manifest);
      const auto known = [&](const RowEncoder* rows) {
        return from.has(std::string(rows->output)) ||
               (with_pixels && from.has(std::string(rows->input)));
      };
      const bool takes_rows = manifest.find(kTokenEmbeddingRole) != nullptr;
      if (!takes_rows || encoders.empty() || !std::ranges::all_of(encoders, known)) continue;
      images = FERRY_TRY(images_of(reference, from, manifest));
    }
    FERRY_RETURN_IF_ERROR(check_prompt(reference, from, manifest));
    EncoderInput encoder_input = FERRY_TRY(encoder_input_of(reference, from, manifest));
    RecordedPrompt& prompt = prompts.emplace_back();
    prompt.images = std::move(images);
    prompt.encoder_input = std::move(encoder_input);
    prompt.name = from.name;
    prompt.tokens = from.input_ids;
    prompt.types = FERRY_TRY(token_types(reference, from));
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
                                     const ParityBounds& bounds, const RoundingOptions& options,
                                     ThreadPool& pool) {
  return RoundingProver(bundle, reference, bounds, options, pool).run();
}

}  // namespace ferry::proof
