#include "proof/bundle_proof.h"

#include <fmt/format.h>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "checkpoint/checkpoint.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "proof/bundle_noise.h"
#include "proof/prompts.h"
#include "proof/reference.h"
#include "proof/reference_check.h"
#include "proof/reference_proof.h"
#include "proof/text_model.h"
#include "runner/text_encoder.h"

namespace ferry::proof {
namespace {

Progress running(const BundleProofOptions& options) {
  return progress_of(options.progress, "running the bundle", ProgressUnit::kItems);
}

std::string embedded_reference(const packer::Bundle& bundle) {
  const std::string& file = bundle.manifest().reference;
  return file.empty() ? std::string() : bundle.path() + "/" + file;
}

// Returns the path of the given reference, else of the embedded one; empty if the comparison needs
// no reference.
Result<std::string> reference_path(const BundleProofOptions& options, const packer::Bundle& bundle,
                                   const packer::Bundle* other) {
  std::string path = options.reference;
  if (path.empty()) path = embedded_reference(bundle);
  if (path.empty() && other != nullptr) path = embedded_reference(*other);
  if (!path.empty() || other != nullptr || !options.checkpoint.empty()) return path;
  return Failure(Error{
      .code = ErrorCode::kUsage,
      .message = fmt::format("{}: the bundle has no embedded reference; give reference FILE (or a "
                             "checkpoint, or another bundle)",
                             printable(bundle.path())),
      .field = "reference"});
}

runner::DecodeOptions decode_of(const BundleProofOptions& options, const packer::Bundle& bundle) {
  if (!options.mode) return {};
  return decode_options_of(bundle.manifest(), *options.mode);
}

using RecordedPrompts = std::vector<RecordedPrompt>;

Result<RecordedPrompts> prompts_for(const packer::Bundle& bundle, const Reference* reference,
                                    int64_t capacity) {
  if (reference != nullptr) return prompts_of(*reference, bundle.manifest());
  RecordedPrompts prompts = probing_prompts(bundle.manifest().vocab_size, capacity);
  add_probing_encoder_input(bundle.manifest(), prompts);
  return prompts;
}

// Records `other` on the prompts. The continuation of each prompt is the one that `other` chooses.
Result<std::unique_ptr<TensorSource>> record_other(const packer::Bundle& other,
                                                   RecordedPrompts& prompts, int64_t capacity,
                                                   std::optional<uint64_t> memory,
                                                   ThreadPool& pool) {
  TextModel model = FERRY_TRY(TextModel::load(other, pool, {.memory = memory}));
  for (RecordedPrompt& prompt : prompts) prompt.routes.clear();
  FERRY_RETURN_IF_ERROR(model.continue_prompts(capacity, prompts));
  return model.record(prompts, other.path());
}

Result<ParityReport> compare_bundles(const packer::Bundle& bundle, const packer::Bundle& other,
                                     const Reference* reference, const BundleProofOptions& options,
                                     ThreadPool& pool) {
  const int64_t capacity =
      std::min(longest_sequence(bundle.manifest()), longest_sequence(other.manifest()));
  RecordedPrompts prompts = FERRY_TRY(prompts_for(bundle, reference, capacity));
  if (reference != nullptr) {
    FERRY_RETURN_IF_ERROR(prompts_of(*reference, other.manifest()));
  }
  const ParityBounds bounds = bounds_between(bundle, other, options.tolerance);
  std::shared_ptr<const NoiseModel> noise;
  const std::unique_ptr<TensorSource> source =
      FERRY_TRY(record_other(other, prompts, capacity, options.memory, pool));
  if (!bounds.given && !bounds.has_floors()) {
    noise = FERRY_TRY(f32_noise(other, prompts, {.memory = options.memory}, pool));
  }
  const Reference recorded = FERRY_TRY(Reference::open(*source));
  TextModel model = FERRY_TRY(
      TextModel::load(bundle, pool, {.memory = options.memory}, decode_of(options, bundle)));
  return model.verify(recorded, bounds.with(noise),
                      {.details = options.details, .progress = running(options)});
}

bool has_delegates(const packer::Bundle& bundle) {
  return std::ranges::any_of(bundle.manifest().programs(),
                             [](const auto* program) { return !program->backends.empty(); });
}

// Returns the noise of the bundle's program on the prompts, or null if a program with delegates has
// no vectors that could be disturbed: the constant bounds hold for it.
Result<std::shared_ptr<const NoiseModel>> noise_of(const packer::Bundle& bundle,
                                                   RecordedPrompts prompts,
                                                   const BundleNoiseOptions& options,
                                                   ThreadPool& pool) {
  if (!has_delegates(bundle)) return f32_noise(bundle, std::move(prompts), options, pool);
  TextModel model =
      FERRY_TRY(TextModel::load(bundle, pool, {.memory = options.memory}, options.decode));
  const std::unique_ptr<TensorSource> source = FERRY_TRY(model.record(prompts, bundle.path()));
  const Reference exact = FERRY_TRY(Reference::open(*source));
  std::shared_ptr<const NoiseModel> noise =
      FERRY_TRY(disturbed_noise(bundle, exact, std::move(prompts), options, pool));
  if (noise->logits_rms() == 0) noise = nullptr;
  return noise;
}

Status prove_outputs(const packer::Bundle& bundle, const Reference& reference,
                     const BundleProofOptions& options, ThreadPool& pool, Verification& out) {
  const ParityBounds bounds = before_factor_codes(bundle, bounds_of(bundle, options.tolerance));
  const runner::DecodeOptions decode = decode_of(options, bundle);
  // Inputs and outputs that are not f32 cannot be widened. The floors alone judge what they round.
  if (bounds.has_floors() && !bounds.rounded_ports) {
    out.rounding = FERRY_TRY(prove_rounding(bundle, reference, bounds,
                                            {.memory = options.memory,
                                             .decode = decode,
                                             .details = options.details,
                                             .progress = running(options)},
                                            pool));
    return {};
  }
  TextModel model = FERRY_TRY(TextModel::load(bundle, pool, {.memory = options.memory}, decode));
  const runner::RowEncoders encoders =
      FERRY_TRY(runner::RowEncoders::load(bundle, pool, {.memory = options.memory}));
  std::shared_ptr<const NoiseModel> noise;
  if (!bounds.given && !bounds.has_floors()) {
    Result<RecordedPrompts> prompts = prompts_of(reference, bundle.manifest(), !encoders.empty());
    // If no prompt can be run, the comparison reports why.
    if (!prompts && prompts.error().code != ErrorCode::kUnsupported) {
      return Failure(std::move(prompts).error());
    }
    if (prompts) {
      noise = FERRY_TRY(noise_of(bundle, *std::move(prompts),
                                 {.memory = options.memory, .decode = decode}, pool));
    }
  }
  out.direct = FERRY_TRY(model.verify(
      reference, bounds.with(noise),
      {.encoders = &encoders, .details = options.details, .progress = running(options)}));
  return {};
}

// If values are not finite, modes cannot be compared, and there is no parity in any case.
bool is_finite(const ParityReport* outputs) {
  return outputs != nullptr && outputs->metrics.values.finite &&
         std::ranges::all_of(outputs->layers,
                             [](const auto& layer) { return layer.metrics.finite; });
}

Status prove_modes(const packer::Bundle& bundle, const Reference* reference,
                   const BundleProofOptions& options, ThreadPool& pool, Verification& out) {
  const bool has_modes = bundle.manifest().program_style == kStaticStyle;
  if (!has_modes || options.mode || !is_finite(out.outputs())) return {};
  const int64_t capacity = longest_sequence(bundle.manifest());
  const RecordedPrompts prompts = FERRY_TRY(prompts_for(bundle, reference, capacity));
  out.modes = FERRY_TRY(prove_modes(bundle, prompts, bounds_of(bundle, options.tolerance),
                                    options.memory, pool, options.details));
  return {};
}

std::string model_of(const packer::Manifest& m) {
  return fmt::format("{} with {} layers, hidden {}, vocabulary {}", quoted(m.model_type),
                     m.num_layers, m.hidden_size, m.vocab_size);
}

}  // namespace

Result<Verification> prove_bundle(const packer::Bundle& bundle, const BundleProofOptions& options,
                                  ThreadPool& pool) {
  std::optional<packer::Bundle> other;
  if (!options.against.empty()) {
    other = FERRY_TRY(packer::Bundle::open(options.against, /*check_digests=*/true, pool,
                                           progress_of(options.progress, "checking digests")));
    FERRY_RETURN_IF_ERROR(check_same_model(bundle, *other));
  }
  const std::string path = FERRY_TRY(reference_path(options, bundle, other ? &*other : nullptr));
  std::optional<HashedFile> hashed;
  if (options.details && !path.empty()) hashed = FERRY_TRY(HashedFile::open(path));
  std::unique_ptr<TensorSource> source;
  if (!path.empty()) source = FERRY_TRY(checkpoint::open_tensors(path));
  std::optional<Reference> opened;
  if (source) opened = FERRY_TRY(Reference::open(*source));
  if (const auto sizes = runner::TextEncoder::sizes_in(bundle.manifest(), path); opened && sizes) {
    opened->name_last_states(bundle.manifest().num_layers, sizes->width);
  }
  const Reference* reference = opened ? &*opened : nullptr;
  Verification out;
  out.has_reference = reference != nullptr;
  out.against = options.against;
  if (const std::optional<AttentionSink>& sink = bundle.manifest().attention_sink) {
    out.window_end = sink->exact_length();
  }
  if (!options.images.empty()) {
    if (reference == nullptr) {
      return fail_field(ErrorCode::kUsage, "image", " needs a reference with pixel_values");
    }
    out.pixels = FERRY_TRY(prove_pixels(bundle, *reference, options.images, pool));
  }
  if (other) {
    out.direct = FERRY_TRY(compare_bundles(bundle, *other, reference, options, pool));
  } else if (!options.checkpoint.empty()) {
    CheckpointOptions given = static_cast<const CheckpointOptions&>(options);
    given.decode = decode_of(options, bundle);
    out.proof = FERRY_TRY(prove_against_checkpoint(bundle, given, reference, pool));
  } else {
    FERRY_RETURN_IF_ERROR(prove_outputs(bundle, *reference, options, pool, out));
  }
  FERRY_RETURN_IF_ERROR(prove_modes(bundle, reference, options, pool, out));
  if (hashed) {
    out.reference_file = FERRY_TRY(hashed->reference(options.reference.empty()));
    out.reference_file->prompts = reference->prompts().size();
  }
  if (options.details) out.other = std::move(other);
  return out;
}

Status check_same_model(const packer::Bundle& bundle, const packer::Bundle& other) {
  const std::string ours = model_of(bundle.manifest()), theirs = model_of(other.manifest());
  if (ours == theirs) return {};
  return bad_input(fmt::format("{}: is another model than {}: {}; the other is {}",
                               printable(other.path()), printable(bundle.path()), theirs, ours));
}

}  // namespace ferry::proof
