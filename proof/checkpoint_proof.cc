#include "proof/checkpoint_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/text.h"
#include "plan/bundle_options.h"
#include "proof/calibration.h"
#include "proof/checkpoint_execution.h"
#include "proof/compared_files.h"
#include "proof/probing.h"
#include "proof/rounding_proof.h"
#include "proof/text_model.h"

namespace ferry::proof {
namespace {

std::string text_of(const Encoding& encoding) {
  return fmt::format("scale {} and zero point {}", encoding.scale, encoding.zero_point);
}

// Empty where they are equal.
std::string encoding_difference(const std::string& what, const std::vector<Encoding>& have,
                                const std::vector<Encoding>& want,
                                const char* option = "--calibrate") {
  const auto [ours, theirs] = std::ranges::mismatch(have, want);
  if (ours == have.end() && theirs == want.end()) return {};
  if (ours == have.end() || theirs == want.end()) {
    return fmt::format("{}: {} encodings, calibration gives {}", what, have.size(), want.size());
  }
  return fmt::format(
      "{}, number {}: {}; calibration gives {}; a bundle made with {} needs the same file here",
      what, ours - have.begin(), text_of(*ours), text_of(*theirs), option);
}

// A line for each kind of encoding that calibration does not give. Programs are made again with the
// encodings that the bundle states, so only this tells whether those are right.
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
    constexpr const char* kOption = "--calibrate-prefill";
    lines.push_back(encoding_difference("encodings of keys of prefill_forward", prefill.keys,
                                        prefill_want.keys, kOption));
    lines.push_back(encoding_difference("encodings of values of prefill_forward", prefill.values,
                                        prefill_want.values, kOption));
  }
  if (is_encoded(have.logits)) {
    lines.push_back(
        encoding_difference("encoding of logits", {have.logits_encoding}, {want.logits_encoding}));
  }
  std::erase(lines, "");
  return lines;
}

// The model in f32, for calls that are as long as any of the prompts needs.
Result<plan::Conversion> plan_f32_path(ThreadPool& pool, const plan::ConvertOptions& options,
                                       const packer::Bundle& bundle,
                                       const std::vector<RecordedPrompt>& prompts) {
  size_t longest = 1;
  for (const RecordedPrompt& prompt : prompts) {
    longest = std::max(longest, prompt.tokens.size() + prompt.continuation.size());
  }
  return plan::plan_f32_layers(bundle, options, static_cast<int64_t>(longest), pool);
}

Result<bool> has_finite_values(const TensorSource& path, size_t entry) {
  if (path.entries()[entry].dtype != DType::kF32) return true;
  std::vector<float> values(path.entries()[entry].bytes / sizeof(float));
  FERRY_RETURN_IF_ERROR(path.read(entry, 0, std::as_writable_bytes(std::span(values))));
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

// The first tensor of the f32 path with a value that is NaN or infinite, in the order in which the
// model computes them; empty if there is none.
Result<std::string> not_finite(const TensorSource& path, int64_t layers) {
  std::vector<std::string> order;
  for (const ReferenceTensor& tensor : reference_tensors(layers)) {
    order.push_back(tensor.name);
  }
  // Entries are PROMPT.TENSOR. What is not in the list comes behind it.
  const auto rank = [&](size_t entry) {
    const std::string& name = path.entries()[entry].name;
    return std::ranges::find_if(order,
                                [&](const std::string& tensor) {
                                  return name == tensor || name.ends_with("." + tensor);
                                }) -
           order.begin();
  };
  std::vector<std::pair<int64_t, size_t>> entries;
  for (size_t i = 0; i < path.entries().size(); ++i) {
    if (!FERRY_TRY(has_finite_values(path, i))) entries.emplace_back(rank(i), i);
  }
  const auto first = std::ranges::min_element(entries);
  return first == entries.end() ? std::string() : path.entries()[first->second].name;
}

// The several calls are reported where only they are wrong.
Status add_several_calls(const ExecutionOutputs& path, const Reference& reference,
                         const ParityBounds& bounds, const VerifyOptions& details,
                         ParityReport& one_call) {
  if (!path.several_calls) return {};
  const Reference again = FERRY_TRY(Reference::open(*path.several_calls));
  ParityReport several = FERRY_TRY(compare_references(again, reference, bounds, details));
  if (one_call.parity && !several.parity) one_call = std::move(several);
  return {};
}

}  // namespace

Result<CheckpointProof> prove_against_checkpoint(const packer::Bundle& bundle,
                                                 const CheckpointOptions& given,
                                                 const Reference* reference, ThreadPool& pool) {
  const packer::Manifest& manifest = bundle.manifest();
  const plan::ConvertOptions options =
      plan::options_of(bundle, given.checkpoint, given.config, given.lora);
  if (!given.calibrate_prefill.empty() && !is_encoded(options.ports.cache)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: --calibrate-prefill: no cache is u8 or u16",
                                               printable(bundle.path())));
  }
  const auto progress = [&given](const char* label, ProgressUnit unit = ProgressUnit::kBytes) {
    return progress_of(given.progress, label, unit);
  };
  CheckpointProof proof;
  std::optional<StoredWeights> stored;
  {
    const plan::Conversion conversion = FERRY_TRY(plan::plan_again(bundle, options, pool));
    proof.tensors =
        FERRY_TRY(prove_weights(pool, bundle, conversion, progress("comparing weights")));
    proof.programs = compare_programs(bundle, *conversion.plan);
    const bool rounds = options.quantize.quantizes() || has_half_matrices(bundle);
    if (rounds) stored.emplace(bundle, conversion);
    if (given.details) proof.source_files = FERRY_TRY(digest_sources(conversion, pool));
  }
  if (is_encoded(options.ports.cache) || is_encoded(options.ports.logits)) {
    proof.encodings = FERRY_TRY(compare_encodings(options, given, pool));
  } else if (!given.calibrate.empty()) {
    return fail(ErrorCode::kUsage, fmt::format("{}: --calibrate: no cache or logits are u8 or u16",
                                               printable(bundle.path())));
  }
  TextModel model =
      FERRY_TRY(TextModel::load(bundle, pool, {.memory = given.memory}, given.decode));
  const std::unique_ptr<runner::VisionEncoder> vision =
      FERRY_TRY(runner::VisionEncoder::load_if_any(bundle, pool, {.memory = given.memory}));
  std::vector<RecordedPrompt> prompts;
  if (reference != nullptr) {
    prompts = FERRY_TRY(prompts_of(*reference, manifest));
  } else {
    // The bundle's own greedy continuation: the f32 path is asked what it thinks of it.
    prompts = probing_prompts(manifest.vocab_size, model.capacity());
    add_probing_image(manifest, model.capacity(), prompts);
    FERRY_RETURN_IF_ERROR(encode_images(vision.get(), prompts));
    FERRY_RETURN_IF_ERROR(model.continue_prompts(model.capacity(), prompts));
  }
  const std::string name = given.checkpoint + " in f32";
  const plan::Conversion layers = FERRY_TRY(plan_f32_path(pool, options, bundle, prompts));
  const ExecutionOutputs path = FERRY_TRY(
      execute_checkpoint(layers, prompts, name, pool, {.progress = progress("computing in f32")}));
  if (const std::string first = FERRY_TRY(not_finite(*path.one_call, manifest.num_layers));
      !first.empty()) {
    proof.problem =
        fmt::format("{}: computes values that are not finite, first in {} (prompt and tensor)",
                    name, quoted(first));
    return proof;
  }
  const Reference recorded = FERRY_TRY(Reference::open(*path.one_call));
  ParityBounds in_f32 = f32_bounds(bundle, given.tolerance);
  if (!in_f32.given) {
    const ExecutionNoise exact =
        FERRY_TRY(measure_noise(layers, prompts, recorded, {}, pool, progress("computing in f64")));
    in_f32 = in_f32.with(exact.noise);
    if (reference != nullptr) {
      const Reference in_f64 = FERRY_TRY(Reference::open(*exact.in_f64));
      proof.f64_path = FERRY_TRY(compare_references(in_f64, *reference, in_f32.as_measurement(),
                                                    {.details = given.details}));
    }
  }
  if (reference != nullptr) {
    const VerifyOptions details = {.details = given.details};
    proof.f32_path = FERRY_TRY(compare_references(recorded, *reference, in_f32, details));
    FERRY_RETURN_IF_ERROR(add_several_calls(path, *reference, in_f32, details, *proof.f32_path));
  }
  if (stored) {
    proof.codes = FERRY_TRY(prove_codes(bundle, *stored, layers, prompts,
                                        {given.tolerance, given.memory, given.decode, given.details,
                                         progress("computing with the bundle's weights")},
                                        pool));
  }
  const ParityBounds bounds = bounds_of(bundle, given.tolerance);
  // A bundle that was held to its own weights is measured here.
  const bool held = proof.codes && proof.codes->absent.empty();
  const ParityBounds judged = held                  ? bounds.as_measurement()
                              : bounds.has_floors() ? bounds
                                                    : bounds.with(in_f32.noise);
  proof.outputs =
      FERRY_TRY(model.verify(recorded, judged,
                             {.vision = vision.get(),
                              .details = given.details,
                              .progress = progress("running the bundle", ProgressUnit::kItems)}));
  // The continuation is the bundle's own: that it chooses its own tokens says nothing.
  if (reference == nullptr) proof.outputs->forget_greedy();
  return proof;
}

}  // namespace ferry::proof
