#include "proof/sound_model.h"

#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/program_interface.h"
#include "proof/encoder_input.h"

namespace ferry::proof {
namespace {

// Returns the tensors that the encoder computes for a sound, in the order of computation.
Result<std::vector<EncoderTensors::Tensor>> compute_sound(runner::AudioEncoder& encoder,
                                                          const EncoderInput& sound) {
  std::vector<EncoderTensors::Tensor> out;
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink(
      [&out](const std::string& name, int64_t rows, std::span<const float> values) {
        if (!is_encoder_tensor(name) || rows < 1) return;
        out.push_back({name, {1, rows, std::ssize(values) / rows}, {values.begin(), values.end()}});
      }));
  Status encoded = encoder.encode(sound.features);
  FERRY_RETURN_IF_ERROR(encoder.set_probe_sink({}));
  FERRY_RETURN_IF_ERROR(std::move(encoded));
  const std::span<const float> logits = encoder.logits();
  const int64_t labels = encoder.sizes().labels;
  out.push_back({std::string(kTokenLogitsPort),
                 {1, std::ssize(logits) / labels, labels},
                 {logits.begin(), logits.end()}});
  return out;
}

// The place of a tensor in the model, for bounds and reports.
ReferenceTensor place_of(const std::string& name, const packer::Manifest& manifest) {
  if (name == kTokenLogitsPort)
    return {ReferenceTensor::Kind::kState, name, name, manifest.num_layers};
  return {ReferenceTensor::Kind::kVision, name, name, encoder_layer(name, manifest)};
}

class SoundCase {
 public:
  SoundCase(const Reference& reference, const ReferencePrompt& prompt, const ParityBounds& bounds,
            const VerifyOptions& options)
      : reference_(reference), prompt_(prompt), bounds_(bounds) {
    report_.prompt = prompt.name;
    if (options.details) details_.emplace(prompt.input_ids, 1, bounds);
  }

  Result<CaseReport> run(runner::AudioEncoder& encoder, const packer::Manifest& manifest) {
    const EncoderInput sound = FERRY_TRY(encoder_input_of(reference_, prompt_, manifest));
    std::set<std::string> known = {std::string(kInputFeaturesPort)};
    for (const EncoderTensors::Tensor& tensor : FERRY_TRY(compute_sound(encoder, sound))) {
      report_.tokens = tensor.shape[1];
      known.insert(tensor.name);
      if (prompt_.has(tensor.name)) FERRY_RETURN_IF_ERROR(compare(tensor, manifest));
    }
    for (const auto& [tensor, entry] : prompt_.tensors) {
      if (!known.contains(tensor)) report_.not_compared.push_back(tensor);
    }
    report_.judge(bounds_);
    if (details_) report_.details = std::make_shared<CaseDetails>(details_->take());
    return std::move(report_);
  }

 private:
  Status compare(const EncoderTensors::Tensor& tensor, const packer::Manifest& manifest) {
    const std::vector<float> want =
        FERRY_TRY(reference_.floats(prompt_, tensor.name, tensor.shape));
    ValueComparison comparison(bounds_.noise_of(prompt_.name, tensor.name));
    comparison.add(tensor.values, want);
    const ValueMetrics metrics = comparison.metrics();
    const ReferenceTensor place = place_of(tensor.name, manifest);
    report_.layers.push_back({place, metrics, bounds_.within(place, metrics)});
    if (details_) details_->add_whole(tensor.name, tensor.values, want);
    return {};
  }

  const Reference& reference_;
  const ReferencePrompt& prompt_;
  const ParityBounds& bounds_;
  CaseReport report_;
  std::optional<DetailCollector> details_;
};

}  // namespace

Result<ParityReport> verify_sounds(runner::AudioEncoder& encoder, const packer::Manifest& manifest,
                                   const Reference& reference, const ParityBounds& bounds,
                                   const VerifyOptions& options) {
  std::vector<CaseReport> cases;
  for (const ReferencePrompt& prompt : reference.prompts()) {
    cases.push_back(
        FERRY_TRY(SoundCase(reference, prompt, bounds, options).run(encoder, manifest)));
    if (options.progress) options.progress(cases.size(), reference.prompts().size());
  }
  return summarize(std::move(cases), bounds, reference.path());
}

Result<std::unique_ptr<TensorSource>> record_sounds(runner::AudioEncoder& encoder,
                                                    const packer::Manifest& manifest,
                                                    const std::vector<RecordedPrompt>& prompts,
                                                    const std::string& name) {
  auto source = std::make_unique<MemorySource>(name);
  for (const RecordedPrompt& prompt : prompts) {
    PromptRecorder recorder(prompt, manifest.vocab_size);
    for (EncoderTensors::Tensor& tensor : FERRY_TRY(compute_sound(encoder, prompt.encoder_input))) {
      recorder.keep_tensor(tensor.name, tensor.shape, std::move(tensor.values));
    }
    recorder.write(*source);
  }
  return std::unique_ptr<TensorSource>(std::move(source));
}

}  // namespace ferry::proof
