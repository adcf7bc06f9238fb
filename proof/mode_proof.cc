#include "proof/mode_proof.h"

#include <memory>
#include <utility>

#include "proof/bundle_noise.h"
#include "proof/parity_report.h"
#include "proof/prompts.h"
#include "proof/reference_check.h"
#include "proof/reference_proof.h"
#include "runner/decoder.h"

namespace ferry::proof {
namespace {

// Lookahead guesses right only after some tokens.
constexpr int64_t kLeastTokens = 24;

constexpr runner::DecodeOptions kKv = {.mode = runner::DecodeMode::kKv};

// The outputs of mode kv in the form of a reference.
struct KvRecord {
  runner::MethodOptions method;         // options of the execution
  std::vector<RecordedPrompt> prompts;  // with the continuations that mode kv chose
  std::unique_ptr<TensorSource> source;
  Reference reference;
};

Result<KvRecord> record_kv(const packer::Bundle& bundle, std::vector<RecordedPrompt> prompts,
                           const runner::MethodOptions& method, ThreadPool& pool) {
  const packer::Manifest& manifest = bundle.manifest();
  const std::unique_ptr<runner::Decoder> decoder =
      FERRY_TRY(runner::load_decoder(bundle, pool, method, kKv));
  for (RecordedPrompt& prompt : prompts) prompt.routes.clear();
  FERRY_RETURN_IF_ERROR(
      continue_prompts(*decoder, manifest, decoder->capacity(), prompts, kLeastTokens));
  std::unique_ptr<TensorSource> source =
      FERRY_TRY(record_reference(*decoder, manifest, prompts, bundle.path() + " in mode kv"));
  Reference reference = FERRY_TRY(Reference::open(*source));
  return KvRecord{method, std::move(prompts), std::move(source), std::move(reference)};
}

// Returns bounds for executions with f32 activations that differ from `kv` in the mode alone.
Result<ParityBounds> noise_bounds(const packer::Bundle& bundle, const KvRecord& kv,
                                  const ParityBounds& bounds, ThreadPool& pool) {
  // Quantised inputs and outputs lose more than a disturbance shows, because methods may have
  // different encodings.
  if (bounds.given || bounds.rounded_ports) return bounds;
  const BundleNoiseOptions options = {kv.method.memory, kKv};
  const bool has_delegates = bounds_of(bundle, {}).coded_db.has_value();
  return bounds.with(
      FERRY_TRY(has_delegates ? disturbed_noise(bundle, kv.reference, kv.prompts, options, pool)
                              : f32_noise(bundle, kv.prompts, options, pool)));
}

// The bounds of the modes of a bundle that rounds activations.
struct RoundedBounds {
  KvRecord in_f32;
  ParityBounds exact;     // for modes with f32 activations
  MeasuredFloors floors;  // for modes as they are: the loss by rounding in mode kv
};

Result<RoundedBounds> rounded_bounds(const packer::Bundle& bundle,
                                     const std::vector<RecordedPrompt>& prompts,
                                     std::optional<uint64_t> memory, ThreadPool& pool) {
  KvRecord in_f32 = FERRY_TRY(record_kv(bundle, prompts, {.widen = true, .memory = memory}, pool));
  ParityBounds exact = FERRY_TRY(noise_bounds(bundle, in_f32, widened_bounds_of(bundle), pool));
  // Plain code rounds 8-bit activations.
  const bool coded = activation_bounds_of(bundle, {}).coded_db.has_value();
  const std::unique_ptr<runner::Decoder> decoder = FERRY_TRY(runner::load_decoder(
      bundle, pool, {.widen = coded, .round_rows = coded, .memory = memory}, kKv));
  const ParityReport loss =
      FERRY_TRY(verify(*decoder, bundle.manifest(), in_f32.reference, exact.as_measurement()));
  return RoundedBounds{std::move(in_f32), std::move(exact), floors_of_noise(loss)};
}

runner::LookaheadCounts lookahead_of(const ParityReport& report) {
  runner::LookaheadCounts sum;
  for (const CaseReport& one : report.cases) {
    sum.generated += one.lookahead ? one.lookahead->generated : 0;
    sum.accepted += one.lookahead ? one.lookahead->accepted : 0;
  }
  return sum;
}

}  // namespace

runner::DecodeOptions decode_options_of(const packer::Manifest& manifest, runner::DecodeMode mode) {
  runner::DecodeOptions options = {.mode = mode};
  runner::LookaheadOptions& lookahead = options.lookahead;
  const int64_t tokens = decode_length(manifest);
  const int64_t needed = (lookahead.window + lookahead.gcap) * (lookahead.ngram - 1);
  if (tokens < 2 || tokens >= needed) return options;
  lookahead.ngram = 2;
  lookahead.window = tokens / 2;
  lookahead.gcap = tokens - tokens / 2;
  return options;
}

Result<std::vector<ModeProof>> prove_modes(const packer::Bundle& bundle,
                                           const std::vector<RecordedPrompt>& prompts,
                                           const ParityBounds& bounds,
                                           std::optional<uint64_t> memory, ThreadPool& pool,
                                           bool details) {
  const packer::Manifest& manifest = bundle.manifest();
  const KvRecord kv = FERRY_TRY(record_kv(bundle, prompts, {.memory = memory}, pool));
  std::optional<RoundedBounds> rounded;
  if (!bounds.given && !bounds.rounded_ports && activation_bounds_of(bundle, {}).has_floors()) {
    rounded = FERRY_TRY(rounded_bounds(bundle, prompts, memory, pool));
  }
  const ParityBounds judged = rounded ? bounds.with(rounded->exact.noise).as_measurement()
                                      : FERRY_TRY(noise_bounds(bundle, kv, bounds, pool));
  const VerifyOptions options = {.details = details};
  std::vector<ModeProof> proofs;
  for (const runner::DecodeMode mode :
       {runner::DecodeMode::kHybrid, runner::DecodeMode::kLookahead}) {
    ModeProof& proof = proofs.emplace_back();
    proof.mode = mode;
    const runner::DecodeOptions decode = decode_options_of(manifest, mode);
    auto loaded = runner::load_decoder(bundle, pool, kv.method, decode);
    if (!loaded && loaded.error().code == ErrorCode::kUsage) {
      proof.absent = loaded.error().message;
      continue;
    }
    const std::unique_ptr<runner::Decoder> decoder = FERRY_TRY(std::move(loaded));
    proof.report = FERRY_TRY(verify(*decoder, manifest, kv.reference, judged, options));
    proof.lookahead = lookahead_of(*proof.report);
    if (!rounded) continue;
    rounded->floors.judge(*proof.report);
    const KvRecord& in_f32 = rounded->in_f32;
    const std::unique_ptr<runner::Decoder> widened =
        FERRY_TRY(runner::load_decoder(bundle, pool, in_f32.method, decode));
    proof.in_f32 = FERRY_TRY(verify(*widened, manifest, in_f32.reference, rounded->exact, options));
  }
  return proofs;
}

}  // namespace ferry::proof
