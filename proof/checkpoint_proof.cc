#include "proof/checkpoint_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/text.h"
#include "packer/loose_programs.h"
#include "plan/bundle_options.h"
#include "proof/calibration.h"
#include "proof/calibration_text.h"
#include "proof/checkpoint_execution.h"
#include "proof/compared_files.h"
#include "proof/prompts.h"
#include "proof/rounding_proof.h"
#include "proof/text_model.h"
#include "proof/weight_calibration.h"

namespace ferry::proof {
namespace {

std::string text_of(const Encoding& encoding) {
  return fmt::format("scale {} and zero point {}", encoding.scale, encoding.zero_point);
}

// Returns a line that describes the difference; empty if the encodings are equal.
std::string encoding_difference(const std::string& what, const std::vector<Encoding>& have,
                                const std::vector<Encoding>& want,
                                const char* method = "kv_forward") {
  const auto [ours, theirs] = std::ranges::mismatch(have, want);
  if (ours == have.end() && theirs == want.end()) return {};
  if (ours == have.end() || theirs == want.end()) {
    return fmt::format("{}: {} encodings, calibration gives {}", what, have.size(), want.size());
  }
  return fmt::format(
      "{}, number {}: {}; calibration gives {}; the prompts must be those that {} was calibrated "
      "with",
      what, ours - have.begin(), text_of(*ours), text_of(*theirs), method);
}

// Returns one line for each kind of encoding that calibration does not give. Programs are made
// again with the encodings that the bundle states, so only this comparison tells whether the
// encodings are right.
Result<std::vector<std::string>> compare_encodings(const plan::ConvertOptions& stated,
                                                   const CheckpointOptions& given,
                                                   ThreadPool& pool) {
  plan::ConvertOptions options = stated;
  const auto prompts_in = [](const std::string& file) {
    return file.empty() ? Result<Prompts>(Prompts{}) : read_prompts(file);
  };
  const Prompts prompts = FERRY_TRY(prompts_in(given.calibrate));
  const Prompts prefill_prompts = FERRY_TRY(prompts_in(given.calibrate_prefill));
  FERRY_RETURN_IF_ERROR(calibrate(options, prompts, pool));
  if (stated.ports.has_prefill_encodings() || !given.calibrate_prefill.empty()) {
    FERRY_RETURN_IF_ERROR(calibrate_prefill(options, prefill_prompts, pool));
  }
  const converters::PortTypes &have = stated.ports, &want = options.ports;
  const converters::PortTypes prefill = have.of_prefill(), prefill_want = want.of_prefill();
  std::vector<std::string> lines = {
      encoding_difference("encodings of keys", have.keys, want.keys),
      encoding_difference("encodings of values", have.values, want.values)};
  if (have.has_prefill_encodings() || want.has_prefill_encodings()) {
    constexpr const char* kMethod = "prefill_forward";
    lines.push_back(encoding_difference("encodings of keys of prefill_forward", prefill.keys,
                                        prefill_want.keys, kMethod));
    lines.push_back(encoding_difference("encodings of values of prefill_forward", prefill.values,
                                        prefill_want.values, kMethod));
  }
  if (is_encoded(have.logits)) {
    lines.push_back(
        encoding_difference("encoding of logits", {have.logits_encoding}, {want.logits_encoding}));
  }
  std::erase(lines, "");
  return lines;
}

Result<bool> has_finite_values(const TensorSource& computed, size_t entry) {
  if (computed.entries()[entry].dtype != DType::kF32) return true;
  std::vector<float> values(computed.entries()[entry].bytes / sizeof(float));
  FERRY_RETURN_IF_ERROR(computed.read(entry, 0, std::as_writable_bytes(std::span(values))));
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

// Returns the first tensor of `computed` that has NaN or infinity, in the order in which the model
// computes them; empty if there is none.
Result<std::string> not_finite(const TensorSource& computed, int64_t layers) {
  std::vector<std::string> order;
  for (const ReferenceTensor& tensor : reference_tensors(layers)) {
    order.push_back(tensor.name);
  }
  // Entries are named PROMPT.TENSOR. Entries that are not in the list come last.
  const auto rank = [&](size_t entry) {
    const std::string& name = computed.entries()[entry].name;
    return std::ranges::find_if(order,
                                [&](const std::string& tensor) {
                                  return name == tensor || name.ends_with("." + tensor);
                                }) -
           order.begin();
  };
  std::vector<std::pair<int64_t, size_t>> entries;
  for (size_t i = 0; i < computed.entries().size(); ++i) {
    if (!FERRY_TRY(has_finite_values(computed, i))) entries.emplace_back(rank(i), i);
  }
  const auto first = std::ranges::min_element(entries);
  return first == entries.end() ? std::string() : computed.entries()[first->second].name;
}

// The proof of one bundle, phase by phase. Each phase adds its results to the proof.
class CheckpointProver {
 public:
  // All arguments must outlive the prover. `reference` may be null.
  CheckpointProver(const packer::Bundle& bundle, const CheckpointOptions& given,
                   plan::ConvertOptions options, const Reference* reference, ThreadPool& pool)
      : bundle_(bundle),
        manifest_(bundle.manifest()),
        given_(given),
        reference_(reference),
        pool_(pool),
        options_(std::move(options)),
        name_(given.checkpoint + " in f32") {}

  Result<CheckpointProof> run() {
    FERRY_RETURN_IF_ERROR(check_calibration());
    proof_.made_again = !packer::is_loose(bundle_);
    if (proof_.made_again) FERRY_RETURN_IF_ERROR(compare_contents());
    if (has_encodings()) proof_.encodings = FERRY_TRY(compare_encodings(options_, given_, pool_));
    TextModel model =
        FERRY_TRY(TextModel::load(bundle_, pool_, {.memory = given_.memory}, given_.decode));
    const runner::RowEncoders encoders =
        FERRY_TRY(runner::RowEncoders::load(bundle_, pool_, {.memory = given_.memory}));
    prompts_ = FERRY_TRY(make_prompts(model, encoders));
    const plan::Conversion layers = FERRY_TRY(plan_layers());
    const ExecutionOutputs in_f32 = FERRY_TRY(execute_checkpoint(
        layers, prompts_, name_, pool_, {.progress = progress("computing in f32")}));
    proof_.problem = FERRY_TRY(problem_of(*in_f32.one_call));
    if (!proof_.problem.empty()) return std::move(proof_);
    const Reference recorded = FERRY_TRY(Reference::open(*in_f32.one_call));
    const ParityBounds f32 = FERRY_TRY(measure_f32_bounds(layers, recorded));
    FERRY_RETURN_IF_ERROR(compare_with_reference(in_f32, recorded, f32));
    FERRY_RETURN_IF_ERROR(compare_with_matched_weights(layers));
    FERRY_RETURN_IF_ERROR(compare_with_stored_weights(layers));
    FERRY_RETURN_IF_ERROR(compare_outputs(model, encoders, recorded, f32));
    return std::move(proof_);
  }

 private:
  Progress progress(const char* label, ProgressUnit unit = ProgressUnit::kBytes) const {
    return progress_of(given_.progress, label, unit);
  }

  bool has_encodings() const {
    if (packer::is_loose(bundle_)) return false;
    return is_encoded(options_.ports.cache) || is_encoded(options_.ports.logits);
  }

  // kUsage for prompts of a calibration that the bundle does not need.
  Status check_calibration() const {
    if (!given_.calibrate_prefill.empty() && !is_encoded(options_.ports.cache)) {
      return useless("calibrate-prefill", "no cache is u8 or u16");
    }
    if (!given_.calibrate.empty() && !has_encodings()) {
      return useless("calibrate", "no cache or logits are u8 or u16");
    }
    return {};
  }
  Failure useless(const char* field, const char* why) const {
    return Failure(
        Error{.code = ErrorCode::kUsage,
              .message = fmt::format("{}: {}: {}", printable(bundle_.path()), field, why),
              .field = field});
  }

  // Derives weights and programs again from the checkpoint, and compares them with the bundle's.
  Status compare_contents() {
    const plan::Conversion conversion = FERRY_TRY(plan::plan_again(bundle_, options_, pool_));
    proof_.tensors =
        FERRY_TRY(prove_weights(pool_, bundle_, conversion, progress("comparing weights")));
    proof_.programs = compare_programs(bundle_, *conversion.plan);
    const bool rounds = options_.quantize.quantizes() || has_half_matrices(bundle_);
    if (rounds) stored_.emplace(bundle_, conversion);
    if (given_.details) proof_.source_files = FERRY_TRY(digest_sources(conversion, pool_));
    return {};
  }

  // Returns the prompts of the reference. Without a reference, the bundle continues generated
  // prompts, and the checkpoint's model computes its logits for these continuations.
  Result<std::vector<RecordedPrompt>> make_prompts(TextModel& model,
                                                   const runner::RowEncoders& encoders) const {
    if (reference_ != nullptr) return prompts_of(*reference_, manifest_);
    std::vector<RecordedPrompt> prompts = probing_prompts(manifest_.vocab_size, model.capacity());
    add_probing_image(manifest_, model.capacity(), prompts);
    add_probing_sound(manifest_, model.capacity(), prompts);
    add_probing_encoder_input(manifest_, prompts);
    FERRY_RETURN_IF_ERROR(encode_images(encoders, prompts));
    FERRY_RETURN_IF_ERROR(model.continue_prompts(model.capacity(), prompts));
    return prompts;
  }

  // Plans the model in f32, for calls as long as the longest prompt needs.
  Result<plan::Conversion> plan_layers() const {
    size_t longest = 1;
    for (const RecordedPrompt& prompt : prompts_) {
      longest = std::max(longest, prompt.tokens.size() + prompt.continuation.size());
    }
    return plan::plan_f32_layers(bundle_, options_, static_cast<int64_t>(longest), pool_);
  }

  // Returns why the checkpoint's outputs cannot be compared with a bundle's; empty if they can.
  Result<std::string> problem_of(const TensorSource& in_f32) const {
    const std::string first = FERRY_TRY(not_finite(in_f32, manifest_.num_layers));
    if (first.empty()) return std::string();
    return fmt::format("{}: computes values that are not finite, first in {} (prompt and tensor)",
                       name_, quoted(first));
  }

  // Returns the bounds of executions in f32. They follow from the noise that an execution in f64
  // measures, unless a tolerance is given. The execution in f64 is compared with the reference too.
  Result<ParityBounds> measure_f32_bounds(const plan::Conversion& layers,
                                          const Reference& recorded) {
    const ParityBounds constant = f32_bounds(bundle_, given_.tolerance);
    if (constant.given) return constant;
    const ExecutionNoise exact = FERRY_TRY(
        measure_noise(layers, prompts_, recorded, {}, pool_, progress("computing in f64")));
    const ParityBounds bounds = constant.with(exact.noise);
    if (reference_ != nullptr) {
      const Reference in_f64 = FERRY_TRY(Reference::open(*exact.in_f64));
      proof_.f64_path = FERRY_TRY(compare_references(in_f64, *reference_, bounds.as_measurement(),
                                                     {.details = given_.details}));
    }
    return bounds;
  }

  // Compares the execution in f32 with the reference. The execution in several calls is reported if
  // it alone is wrong. The execution has the factors of the bundle's adapter.
  Status compare_with_reference(const ExecutionOutputs& in_f32, const Reference& recorded,
                                const ParityBounds& f32) {
    if (reference_ == nullptr) return {};
    const ParityBounds bounds = before_factor_codes(bundle_, f32);
    const VerifyOptions details = {.details = given_.details};
    proof_.f32_path = FERRY_TRY(compare_references(recorded, *reference_, bounds, details));
    if (!in_f32.several_calls) return {};
    const Reference again = FERRY_TRY(Reference::open(*in_f32.several_calls));
    ParityReport several = FERRY_TRY(compare_references(again, *reference_, bounds, details));
    if (proof_.f32_path->parity && !several.parity) proof_.f32_path = std::move(several);
    return {};
  }

  // Compares a bundle that rounds or quantises weights with the model that has the bundle's
  // weights.
  Status compare_with_stored_weights(const plan::Conversion& layers) {
    if (!stored_) return {};
    proof_.codes =
        FERRY_TRY(prove_codes(bundle_, *stored_, layers, prompts_, codes_options(), pool_));
    return {};
  }

  CodedProofOptions codes_options() const {
    return {.tolerance = given_.tolerance,
            .memory = given_.memory,
            .decode = given_.decode,
            .details = given_.details,
            .progress = progress("computing with the bundle's weights")};
  }

  // Finds the weights of a program of another tool, and compares the program with the model that
  // has them if they are rounded or quantised.
  Status compare_with_matched_weights(const plan::Conversion& layers) {
    if (proof_.made_again) return {};
    proof_.matched =
        FERRY_TRY(MatchedWeights::find(bundle_, layers, pool_, progress("comparing weights")));
    const ParityBounds bounds = bounds_of(bundle_, given_.tolerance);
    if (!proof_.matched->undecided().empty() || !bounds.has_floors()) return {};
    Result<CodedProof> codes =
        prove_codes(bundle_, proof_.matched->reader(), layers, prompts_, codes_options(), pool_);
    // Few operators take a matrix in half precision beside activations in f32. An error that is
    // none of this execution alone ends the execution of the program as it is, too.
    if (!codes && codes.error().code == ErrorCode::kBadInput) {
      proof_.codes.emplace().absent =
          "its activations cannot be kept in f32: " + codes.error().message;
      return {};
    }
    proof_.codes = FERRY_TRY(std::move(codes));
    return {};
  }

  // Compares the bundle as it is with the execution in f32, whose bounds are `f32`.
  Status compare_outputs(TextModel& model, const runner::RowEncoders& encoders,
                         const Reference& recorded, const ParityBounds& f32) {
    const ParityBounds bounds = bounds_of(bundle_, given_.tolerance);
    // A bundle that was held to its own weights is only measured here, and so is a program of
    // another tool that could not be held to them: floors of its coding prove nothing.
    const bool held = (proof_.codes && proof_.codes->absent.empty()) ||
                      (proof_.matched && !proof_.matched->undecided().empty());
    const ParityBounds judged = held                  ? bounds.as_measurement()
                                : bounds.has_floors() ? bounds
                                                      : bounds.with(f32.noise);
    proof_.outputs =
        FERRY_TRY(model.verify(recorded, judged,
                               {.encoders = &encoders,
                                .details = given_.details,
                                .progress = progress("running the bundle", ProgressUnit::kItems)}));
    // The bundle chose the continuation, so it proves nothing that the bundle chooses these tokens.
    if (reference_ == nullptr) proof_.outputs->forget_greedy();
    return {};
  }

  const packer::Bundle& bundle_;
  const packer::Manifest& manifest_;
  const CheckpointOptions& given_;
  const Reference* reference_;
  ThreadPool& pool_;
  const plan::ConvertOptions options_;
  const std::string name_;  // name of the execution in f32 in messages
  std::vector<RecordedPrompt> prompts_;
  std::optional<StoredWeights> stored_;  // set if weights are rounded or quantised
  CheckpointProof proof_;
};

// Calibrates the weights again with the text that the bundle was calibrated with.
Status calibrate_again(const packer::Bundle& bundle, const CheckpointOptions& given,
                       plan::ConvertOptions& options, ThreadPool& pool) {
  graph::QuantizeOptions& quantize = options.quantize;
  const auto refuse = [&](std::string_view why) {
    return Failure(
        Error{.code = ErrorCode::kUsage,
              .message = fmt::format("{}: calibrate-weights: {}", printable(bundle.path()), why),
              .field = "calibrate-weights"});
  };
  if (quantize.calibration.empty()) {
    if (given.calibrate_weights.empty()) return {};
    return refuse("the weights are not calibrated");
  }
  // Without a text, the default one is tried.
  const bool is_given = !given.calibrate_weights.empty();
  Result<CalibrationText> read = read_calibration_text(
      options, is_given ? given.calibrate_weights : std::string(kDefaultCalibration), pool);
  if (!is_given && (!read || read->digest != quantize.calibration)) {
    return refuse("the weights are calibrated with a text that the proof needs");
  }
  const CalibrationText text = FERRY_TRY(std::move(read));
  if (text.digest != quantize.calibration) {
    return refuse(fmt::format(
        "{} is another text than that of the bundle: its tokens have {}, "
        "those of the bundle {}",
        printable(given.calibrate_weights), text.digest, printable(quantize.calibration)));
  }
  quantize.calibrated = FERRY_TRY(calibrate_weights(
      options, text.sequences, pool, progress_of(given.progress, "calibrating again")));
  return {};
}

}  // namespace

bool CheckpointProof::decided() const {
  return !matched || matched->undecided().empty() || !outputs ||
         outputs->metrics.values.sqnr_db >= kTellingDb;
}

Result<CheckpointProof> prove_against_checkpoint(const packer::Bundle& bundle,
                                                 const CheckpointOptions& options,
                                                 const Reference* reference, ThreadPool& pool) {
  plan::ConvertOptions made_with = FERRY_TRY(plan::options_of(bundle, {.path = options.checkpoint,
                                                                       .config = options.config,
                                                                       .lora = options.lora,
                                                                       .mmproj = options.mmproj}));
  FERRY_RETURN_IF_ERROR(calibrate_again(bundle, options, made_with, pool));
  return CheckpointProver(bundle, options, std::move(made_with), reference, pool).run();
}

}  // namespace ferry::proof
