#include "proof/mode_proof.h"

#include <memory>
#include <utility>

#include "proof/bundle_noise.h"
#include "proof/probing.h"
#include "proof/sequence_length.h"
#include "proof/verify.h"
#include "runner/decoder.h"

namespace ferry::proof {
namespace {

// Guesses of lookahead need some tokens before they are right.
constexpr int64_t kLeastTokens = 24;

// Sets the continuations of `prompts`.
Result<std::unique_ptr<TensorSource>> record_kv(const packer::Bundle& bundle,
                                                std::vector<RecordedPrompt>& prompts,
                                                std::optional<uint64_t> memory, ThreadPool& pool) {
  const packer::Manifest& manifest = bundle.manifest();
  const std::unique_ptr<runner::Decoder> decoder = FERRY_TRY(
      runner::load_decoder(bundle, pool, {.memory = memory}, {.mode = runner::DecodeMode::kKv}));
  for (RecordedPrompt& prompt : prompts) prompt.routes.clear();
  FERRY_RETURN_IF_ERROR(
      continue_prompts(*decoder, manifest, decoder->capacity(), prompts, kLeastTokens));
  return record_reference(*decoder, manifest, prompts, bundle.path() + " in mode kv");
}

runner::LookaheadCounts lookahead_of(const ParityReport& report) {
  runner::LookaheadCounts sum;
  for (const CaseReport& one : report.cases) {
    sum.generated += one.lookahead ? one.lookahead->generated : 0;
    sum.accepted += one.lookahead ? one.lookahead->accepted : 0;
  }
  return sum;
}

Result<ModeProof> prove_mode(const packer::Bundle& bundle, runner::DecodeMode mode,
                             const Reference& recorded, const ParityBounds& bounds,
                             std::optional<uint64_t> memory, ThreadPool& pool, bool details) {
  ModeProof proof;
  proof.mode = mode;
  auto decoder = runner::load_decoder(bundle, pool, {.memory = memory},
                                      decode_options_of(bundle.manifest(), mode));
  if (!decoder && decoder.error().code == ErrorCode::kUsage) {
    proof.absent = decoder.error().message;
    return proof;
  }
  const std::unique_ptr<runner::Decoder> loaded = FERRY_TRY(std::move(decoder));
  proof.report =
      FERRY_TRY(verify(*loaded, bundle.manifest(), recorded, bounds, {.details = details}));
  proof.lookahead = lookahead_of(*proof.report);
  return proof;
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
                                           std::vector<RecordedPrompt> prompts,
                                           const ParityBounds& bounds,
                                           std::optional<uint64_t> memory, ThreadPool& pool,
                                           bool details) {
  const std::unique_ptr<TensorSource> source = FERRY_TRY(record_kv(bundle, prompts, memory, pool));
  const Reference recorded = FERRY_TRY(Reference::open(*source));
  ParityBounds judged = bounds;
  // A disturbance does not show what quantised ports lose: methods may have other encodings.
  if (!bounds.given && !bounds.rounded_ports) {
    const BundleNoiseOptions options = {memory, {.mode = runner::DecodeMode::kKv}};
    judged = bounds.with(FERRY_TRY(bounds.has_floors()
                                       ? disturbed_noise(bundle, recorded, prompts, options, pool)
                                       : f32_noise(bundle, prompts, options, pool)));
  }
  std::vector<ModeProof> proofs;
  for (const runner::DecodeMode mode :
       {runner::DecodeMode::kHybrid, runner::DecodeMode::kLookahead}) {
    proofs.push_back(FERRY_TRY(prove_mode(bundle, mode, recorded, judged, memory, pool, details)));
  }
  return proofs;
}

}  // namespace ferry::proof
